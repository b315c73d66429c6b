"""Kafka's group coordinator (classic protocol): generations, static members, cooperative assignment, offsets in transactions.

As the real one checks an offset in a transaction: by member and generation where either is given; one with generation -1 and
no member is not checked at all. Commits under the present generation are taken while members join the next one.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError

from tests.simulation.scheduler import Scheduler

Partition = tuple[str, int]


class GroupMetadata(NamedTuple):
    """What a consumer says of itself with offsets."""

    group: str
    generation: int = -1
    member: str = ""
    instance: str | None = None


class Opaque(bytes):
    """A consumer's metadata as the client hands them out: bytes, which remember what is in them."""

    said: GroupMetadata

    @classmethod
    def of(cls, said: GroupMetadata) -> "Opaque":
        """Return it as librdkafka writes it down."""
        names = [said.group, said.member, *([said.instance] if said.instance else [])]
        made = cls(
            b"CGMDv2:"
            + said.generation.to_bytes(4, "little", signed=True)
            + b"".join(n.encode() + b"\0" for n in names)
        )
        made.said = said
        return made


class Joined(NamedTuple):
    """What a member gets."""

    member: str
    generation: int
    assignment: list[Partition]


class Member:
    """A member of a group."""

    def __init__(self, name: str, instance: str | None, session: float) -> None:
        self.name = name
        self.instance = instance
        self.session = session
        self.heard_at = 0.0
        self.owned: list[Partition] = []
        self.owned_generation = -1
        self.topics: set[str] = set()
        self.assignment: list[Partition] = []
        #: Answers the join that waits.
        self.answer: Callable[[Joined], None] | None = None


class Group:
    """One group."""

    def __init__(
        self, name: str, scheduler: Scheduler, partitions: Callable[[Iterable[str]], list[Partition]], delay: float
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._partitions = partitions
        self._initial_delay = delay
        self.generation = 0
        #: `empty`, `joining`, `completing`, `stable`.
        self.state = "empty"
        self.members: dict[str, Member] = {}
        self._numbers = 0
        self._round = 0
        #: (offset, metadata) by partition, and what transactions hold of them, by producer, with the number of its record.
        self.offsets: dict[Partition, tuple[int, str]] = {}
        self._pending: dict[int, dict[Partition, tuple[int, tuple[int, str]]]] = {}
        self._records: dict[Partition, int] = {}
        self._record = 0
        self.rebalances = 0

    # Offsets.

    def commit_in_transaction(
        self, producer: int, member: GroupMetadata, offsets: dict[Partition, tuple[int, str]]
    ) -> int:
        """TxnOffsetCommit: return an error's number, or 0."""
        if member.generation >= 0 or member.member or member.instance:
            error = self._known(member)
            if error:
                return error
            if member.generation != self.generation:
                return KafkaError.ILLEGAL_GENERATION
        self._record += 1
        self._pending.setdefault(producer, {}).update(
            {each: (self._record, offset) for each, offset in offsets.items()}
        )
        return 0

    def commit(self, offsets: dict[Partition, tuple[int, str]], member: GroupMetadata | None = None) -> int:
        """OffsetCommit; who is no member is refused while there are members. Return an error's number, or 0."""
        if member is not None:
            if error := self._known(member):
                return error
            if member.generation != self.generation:
                return KafkaError.ILLEGAL_GENERATION
            if self.state == "completing":
                return KafkaError.REBALANCE_IN_PROGRESS
        elif self.members:
            return KafkaError.UNKNOWN_MEMBER_ID
        self._record += 1
        self._records.update(dict.fromkeys(offsets, self._record))
        self.offsets.update(offsets)
        return 0

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """A transaction's marker came."""
        pending = self._pending.pop(producer, {})
        for each, (record, offset) in pending.items() if commit else ():
            # The later record counts, whichever transaction's marker comes first.
            if record > self._records.get(each, 0):
                self._records[each], self.offsets[each] = record, offset

    def fetch(self, partitions: list[Partition], *, stable: bool) -> dict[Partition, tuple[int, str]] | int:
        """OffsetFetch; with `stable` refused while a transaction holds one of them."""
        held = {each for pending in self._pending.values() for each in pending}
        if stable and held.intersection(partitions):
            return KafkaError.UNSTABLE_OFFSET_COMMIT
        return {each: self.offsets[each] for each in partitions if each in self.offsets}

    def _known(self, member: GroupMetadata) -> int:
        if member.instance is not None:
            owner = self._static(member.instance)
            if owner is None:
                return KafkaError.UNKNOWN_MEMBER_ID
            if owner.name != member.member:
                return KafkaError.FENCED_INSTANCE_ID
        return 0 if member.member in self.members else KafkaError.UNKNOWN_MEMBER_ID

    # Membership.

    def join(
        self,
        member: GroupMetadata,
        session: float,
        topics: Iterable[str],
        owned: list[Partition],
        answer: Callable[[Joined | int], None],
    ) -> None:
        """JoinGroup and SyncGroup in one: answered when the generation is complete."""
        replaced = self._static(member.instance) if member.instance is not None else None
        if member.member:
            error = self._known(member)
            if error:
                answer(error)
                return
            one = self.members[member.member]
        else:
            self._numbers += 1
            one = Member(f"{member.instance or 'member'}-{self._numbers}", member.instance, session)
            if replaced is not None:
                self._scheduler.trace(f"group {self.name}: {one.name} takes the place of {replaced.name}")
                del self.members[replaced.name]
                one.assignment, one.owned = replaced.assignment, owned
                one.heard_at, one.topics = self._scheduler.now, set(topics)
                self.members[one.name] = one
                self._expire_later(one)
                if self.state == "stable":
                    answer(Joined(one.name, self.generation, list(one.assignment)))
                    return
            else:
                self.members[one.name] = one
                self._expire_later(one)
        one.heard_at, one.topics = self._scheduler.now, set(topics)
        one.owned, one.owned_generation = list(owned), member.generation
        one.answer = answer
        if self.state != "joining":
            self._rebalance(f"{one.name} joins")
        self._complete()

    def heartbeat(self, member: GroupMetadata) -> int:
        """Heartbeat."""
        error = self._known(member)
        if error:
            return error
        if member.generation != self.generation:
            return KafkaError.ILLEGAL_GENERATION
        self.members[member.member].heard_at = self._scheduler.now
        return KafkaError.REBALANCE_IN_PROGRESS if self.state == "joining" else 0

    def leave(self, member: GroupMetadata) -> int:
        """LeaveGroup."""
        error = self._known(member)
        if not error:
            self._remove(self.members[member.member], "leaves")
        return error

    def _static(self, instance: str | None) -> Member | None:
        return next(
            (member for member in self.members.values() if instance is not None and member.instance == instance), None
        )

    def _rebalance(self, why: str) -> None:
        self._scheduler.trace(f"group {self.name}: generation {self.generation} ends: {why}")
        first = self.state == "empty"
        self.state = "joining"
        self.rebalances += 1
        self._round += 1
        self._not_before = self._scheduler.now + (self._initial_delay if first else 0.0)
        if first and self._initial_delay:
            self._scheduler.after(self._initial_delay + 1e-6, self._complete)

    def _complete(self) -> None:
        if self.state != "joining" or self._scheduler.now < self._not_before:
            return
        if not self.members:
            self.state, self.generation = "empty", self.generation + 1
            return
        if any(member.answer is None for member in self.members.values()):
            return
        self.generation += 1
        self.state = "completing"
        self._round += 1
        number = self._round
        # The leader makes the assignment and sends it.
        self._scheduler.after(self._scheduler.random.random() * 0.02, lambda: self._assign(number))

    def _assign(self, number: int) -> None:
        if number != self._round or self.state != "completing":
            return
        self.state = "stable"
        assignment = cooperative(
            {name: (each.owned, each.owned_generation) for name, each in self.members.items()},
            self._partitions({topic for each in self.members.values() for topic in each.topics}),
        )
        self._scheduler.trace(f"group {self.name}: generation {self.generation}: {assignment}")
        for name, each in self.members.items():
            each.assignment = assignment[name]
            each.heard_at = self._scheduler.now
            answer, each.answer = each.answer, None
            if answer is not None:
                answer(Joined(name, self.generation, list(each.assignment)))

    def _remove(self, one: Member, why: str) -> None:
        self.members.pop(one.name, None)
        if self.state in {"stable", "completing"}:
            for other in self.members.values():
                if self.state == "completing" and other.answer is not None:
                    # It has to ask again.
                    answer, other.answer = other.answer, None
                    answer(KafkaError.REBALANCE_IN_PROGRESS)
            self._rebalance(f"{one.name} {why}")
        self._complete()

    def _expire_later(self, one: Member) -> None:
        def look() -> None:
            if self.members.get(one.name) is not one:
                return
            if one.answer is not None:
                # It waits for the others.
                one.heard_at = self._scheduler.now
            left = one.heard_at + one.session - self._scheduler.now
            if left <= 0:
                self._remove(one, "was not heard for its session's timeout")
            else:
                self._scheduler.after(left + 1e-6, look)

        self._scheduler.after(one.session, look)


def cooperative(
    members: dict[str, tuple[list[Partition], int]], partitions: list[Partition]
) -> dict[str, list[Partition]]:
    """Assign evenly, moving as few as possible; what moves is first taken from its owner and given to the other next time."""
    names = sorted(members)
    owner: dict[Partition, str] = {}
    for name in sorted(names, key=lambda name: members[name][1]):
        owner.update(dict.fromkeys(members[name][0], name))
    least, more = divmod(len(partitions), len(names))
    kept: dict[str, list[Partition]] = {
        name: [each for each in partitions if owner.get(each) == name][: least + 1] for name in names
    }
    full = sorted((name for name in names if len(kept[name]) > least), key=lambda name: (-len(kept[name]), name))
    for name in full[more:]:
        kept[name] = kept[name][:least]
    taken = {each for held in kept.values() for each in held}
    wanted = {name: list(held) for name, held in kept.items()}
    for each in partitions:
        if each not in taken:
            name = min(names, key=lambda name: (len(wanted[name]), name))
            wanted[name].append(each)
    return {name: [each for each in wanted[name] if owner.get(each) in {None, name}] for name in names}
