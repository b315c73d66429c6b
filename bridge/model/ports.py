"""What the bridge needs of Kafka, as small protocols: they can be over a simulated Kafka, and the lanes see no socket.

`TransactionalProducer` writes records and positions in one transaction (bridge/kafka/producer.py); `GroupMember` takes part in
the group of bridges (bridge/group/client.py); `PositionReader` reads committed positions (bridge/positions/read.py). All of them
raise errors of headrace/errors.py only, and the ones below.

    NotConnected, Retryable   try again: nothing that was begun is known to be committed
    PartitionsFailed          the records of some partitions were not taken: the transaction has to be aborted
    OldGeneration             the group's generation has changed: the transaction has to be aborted
    Fenced                    another producer uses the transactional id: this producer is of no more use
    InstanceFenced            another process has joined with this instance's name
    NeedsOperator             rights, topics, settings
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from bridge.model.chain import Withheld
from headrace.batch import Headers
from headrace.errors import NeedsOperator, ReplicationError, Retryable
from headrace.position import Position

Partition = tuple[str, int]


class Fenced(ReplicationError):  # noqa: N818 - a state, which reads best without a suffix.
    """Another producer uses the transactional id, or Kafka aborted the transaction."""


class OldGeneration(Retryable):
    """The group has a newer generation than the one that the commit named."""


class InstanceFenced(NeedsOperator):
    """Another process has joined the group with this instance's name."""


class PartitionsFailed(Retryable):
    """Kafka did not take the records of some partitions of a transaction."""

    def __init__(self, failed: Mapping[Partition, ReplicationError]) -> None:
        topics = ", ".join(sorted({f"{topic}[{partition}]" for topic, partition in failed})[:5])
        super().__init__(f"Kafka did not take the records for {topics}")
        #: The reason for each partition.
        self.failed = dict(failed)


class GroupMetadata(NamedTuple):
    """What a transaction names so that the broker refuses members of former generations."""

    #: The metadata as the client made it.
    opaque: Any
    group: str
    generation: int
    member: str

    @property
    def is_usable(self) -> bool:
        """Whether the broker would check it: without generation and member it checks nothing."""
        return self.generation >= 0 and bool(self.member)


class PositionCommit(NamedTuple):
    """An offset to commit for the group, with a position in its metadata."""

    topic: str
    partition: int
    offset: int
    metadata: str


class Share(NamedTuple):
    """Records for one partition of one topic, in order."""

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes | None]
    #: Headers of the records that have any, by their index; None where none has.
    headers: Headers | None = None


class Committed(NamedTuple):
    """What Kafka holds for a source."""

    #: None: no position is known.
    position: Position | None
    #: When it was committed, ISO 8601, UTC, by the bridge's clock; empty when it is not a committed position.
    at: str
    #: The bridge that committed it; empty as above.
    bridge: str
    #: The offset for each (topic, partition) of the source.
    offsets: dict[Partition, int]
    #: The tables that are withheld; None where the group does not hold it.
    withheld: Withheld | None = None
    #: The numbers of its partitions in the order by which keys are shared out; empty where that is not known.
    order: tuple[int, ...] = ()


class TransactionalProducer(Protocol):
    """One transactional producer; used by one thread."""

    def is_stale(self) -> bool:
        """Whether something has changed that it read when it was made: it is to be made again."""

    def begin(self) -> None:
        """Begin a transaction."""

    def produce(self, share: Share) -> None:
        """Queue records; raise PartitionsFailed when their partition is known not to exist."""

    def flush(self, seconds: float) -> dict[Partition, int]:
        """Wait until Kafka has taken all records; return the offset after the last one of each partition.

        Raises PartitionsFailed for those that Kafka refused, or did not take in time while it took others.
        """

    def commit(self, positions: Sequence[PositionCommit], group: GroupMetadata, seconds: float) -> None:
        """Commit records and positions; raise OldGeneration, Fenced, or NotConnected when the outcome is not known."""

    def abort(self, seconds: float) -> None:
        """Abort the transaction; any error means that the producer is of no more use."""

    def discard(self) -> None:
        """Give the producer up without waiting for anything."""


#: Returns a producer whose transactional id is initialised: what a former producer of this id left open is aborted.
OpenProducer = Callable[[str], TransactionalProducer]


class GroupMember(Protocol):
    """This bridge's membership in the group; used by one thread, which calls the three functions from within `poll`."""

    def join(
        self,
        topics: Collection[str],
        assigned: Callable[[Collection[Partition]], None],
        revoked: Callable[[Collection[Partition]], None],
        lost: Callable[[Collection[Partition]], None],
    ) -> None:
        """Join the group for the partitions of some topics. `revoked` returns once they are released; `lost` ones are gone."""

    def poll(self, seconds: float) -> None:
        """Take part for at most `seconds`; raise NotConnected, Retryable, or InstanceFenced."""

    def metadata(self) -> GroupMetadata | None:
        """Return what commits have to name now, None while the group has not admitted this member."""

    def unassigned(self, partitions: Collection[Partition]) -> set[Partition] | None:
        """Return those of some partitions that no member of the group has; None while members join or leave."""

    def look(self) -> None:
        """Look again how many partitions the topics have; those that are new are then assigned, and no others move."""

    def rejoin(self) -> None:
        """Leave the group and join it again, as a member that it does not know."""

    def is_known(self) -> bool:
        """Return whether the group has a member of this instance's name, be it this one or another."""

    def reset(self) -> None:
        """Forget a membership that another one has taken over; `join` begins the next."""

    def renew(self) -> None:
        """Leave the group and forget the membership; `join` begins the next, by what files and secrets are then."""

    def close(self, *, leave: bool) -> None:
        """End; with `leave` the others take over at once, else after the session's time, or this instance when it returns."""


class PositionReader(Protocol):
    """Reads committed positions; used by one thread."""

    def read(self, sources: Collection[str]) -> dict[str, Committed | ReplicationError | None]:
        """Return what Kafka holds for each source, or why it is not known; only what no open transaction can change any more.

        None for those that have to be searched for, by another reader. Raises NotConnected or Retryable when nothing is known of
        any.
        """
