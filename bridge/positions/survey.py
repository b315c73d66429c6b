"""What Kafka holds for each source of a file, whether or not a bridge runs; moving and forgetting a source."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, OffsetSpec, TopicPartition
from bridge.kafka.entries import NOBODY, Entries, commit_offsets, committed_of, read_entries, read_topics, reading
from bridge.kafka.errors import translated
from bridge.kafka.topics import names
from bridge.model.chain import NOTHING, Withheld, parse, position_text
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute, learn, routes
from bridge.positions.former import read_former
from bridge.positions.last_record import read_last_record
from bridge.positions.read import check_refused, check_reordered
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator, ReplicationError
from headrace.position import Position

_MOVE = "headrace bridge move"
#: Seconds for which a bridge that has ended may be a member of its group: its session's time.
STOPPING_SECONDS = 20.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Running(NeedsOperator):
    """Bridges of the group are running."""

    def __init__(self, group: str) -> None:
        hint = (
            "Stop all of them, change their files, run this again, and start them. Edges keep what they have meanwhile."
        )
        super().__init__(f"bridges of the group {group} are running", hint=hint)


class Reading(NamedTuple):
    """What the group of bridges has committed in all partitions of some topics, and what is wrong with single ones."""

    topics: Collection[str]
    entries: Entries
    refused: Mapping[Partition, ReplicationError]


def once_stopped(step: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a step that reads positions, and commits others, done from its beginning again while the group has members.

    What they commit until they end is read then. Raises NeedsOperator when they run for longer than `STOPPING_SECONDS`.
    """

    @wraps(step)
    def done(*arguments: _P.args, **named: _P.kwargs) -> _T:
        until = time.monotonic() + STOPPING_SECONDS
        while True:
            try:
                return step(*arguments, **named)
            except _Running:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    return done


def survey(file: BridgeFile) -> list[dict[str, Any]]:
    """Return what Kafka holds for each source of a file, in the file's order; nulls where it holds nothing, or `error` why."""
    committed = positions_of(file)
    return [
        {"source": source, "stream": stream, "topic": file.topic(stream), **_shown(committed[source])}
        for stream, section in file.streams.items()
        for source in section.sources
    ]


def _shown(committed: Committed | ReplicationError | None) -> dict[str, Any]:
    """Return what the survey has of one source's position."""
    held = None if isinstance(committed, ReplicationError) else committed
    position = held.position if held is not None else None
    return {
        "position": str(position) if position is not None else None,
        "epoch": datetime.fromtimestamp(position.epoch, UTC).isoformat() if position is not None else None,
        "committed_at": held.at if held is not None else None,
        "bridge": held.bridge if held is not None else None,
        "withheld": sorted(withheld_tables(held)),
        "offsets": [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in sorted(held.offsets.items() if held is not None else ())
        ],
        "error": f"{committed.message}. {committed.hint}" if isinstance(committed, ReplicationError) else None,
    }


def read_group(file: BridgeFile, topics: Collection[str] = (), *, stable: bool = True) -> Reading:
    """Return what the group holds in some topics, by default those in which sources are.

    Unless `stable`, an open transaction may still change it.
    """
    by_source, refused = routes(file), dict[Partition, ReplicationError]()
    topics = topics or {route.topic for route in by_source.values()}
    with reading(file.kafka, file.group, stable=stable) as client:
        return Reading(topics, read_topics(client, file.group, topics, refused, by_source.values()), refused)


def positions_of(file: BridgeFile, group: Reading | None = None) -> dict[str, Committed | ReplicationError | None]:
    """Return what the group of bridges, or that of a former release, has committed for each source.

    Without `group`, an open transaction may still change it. In its place, what is wrong with the partitions of one source, or
    with those in which it may have been.
    """
    group = group or read_group(file, stable=False)
    committed: dict[str, Committed | ReplicationError | None] = {}
    for source, route in routes(file).items():
        try:
            committed[source] = _held(file, route, group)
        except NeedsOperator as error:
            committed[source] = error
    return committed


def _held(file: BridgeFile, route: SourceRoute, group: Reading) -> Committed | None:
    """Return what this group, or that of a former release, has committed for a source; raise why it is not known."""
    held = committed_of(route.source, group.entries)
    check_refused(route, held, group.entries, group.refused)
    return held or read_former(file.kafka, route)


def withheld_tables(held: Committed | None) -> Collection[str]:
    """Return the tables whose records wait outside their topics, by a committed position."""
    return held.withheld.tables.keys() if held is not None and held.withheld is not None else ()


@once_stopped
def move(file: BridgeFile, admin: Any, sources: Collection[str]) -> dict[str, Committed]:
    """Commit sources' positions in the partitions that the file names; return what was committed before.

    All of them are committed at once, so sources can swap partitions. One of which bridges have committed no position yet goes on
    from its last record; without any, it begins in its new partitions, which are its own in the group: a bridge with a former
    file would begin in others. Before anything changes, raises NeedsOperator when one of them is not in the group or has withheld
    tables, or the same partitions in another order, or when a partition holds the position of a source that does not leave it, or
    what no bridge committed; then when bridges of the group are running: they would commit positions in the former partitions.
    """
    by_source, group = routes(file), read_group(file)
    held = {source: _movable(by_source[source], _held(file, by_source[source], group)) for source in sources}
    for source, each in held.items():
        if each.position is None:
            held[source] = each._replace(position=_last_position(file, admin, by_source[source], each))
    for source in held:
        _check_leaving(by_source[source], group.entries, held)
    positions = {source: each.position for source, each in held.items()}
    taken = {place for source in held for place in by_source[source].places}
    nobody = position_text(NOBODY, None, _MOVE)
    former = [
        TopicPartition(*place, offset, metadata=nobody)
        for each in held.values()
        for place, offset in each.offsets.items()
        # What a group of a former release had may be another source's since.
        if place not in taken and _holder(group.entries, place) in {*held, NOBODY, ""}
    ]
    commit_positions(file, admin, positions, _MOVE, group, former)
    for each in held.values():
        _delete_withheld(file, admin, each)
    return held


def _movable(route: SourceRoute, held: Committed | None) -> Committed:
    """Return what is committed for a source that can be moved."""
    source = route.source
    if waiting := withheld_tables(held):
        raise NeedsOperator(
            f"{source} has withheld tables, whose records are in its former partition: {', '.join(sorted(waiting))}",
            hint="Name the former partitions in the file, start the bridges, and have the registry take the tables' schemas; "
            "move the source once 'headrace bridge positions' shows none.",
        )
    if held is None:
        raise NeedsOperator(
            f"{source} has no committed position",
            hint="A source that has no records yet can start in the partitions that the file names, once no bridge runs with a "
            "file that names others. Of another one, name the former partitions: the bridge reads the position back from its "
            "last record there.",
        )
    check_reordered(route, held.order)
    return held


def _last_position(file: BridgeFile, admin: Any, route: SourceRoute, held: Committed) -> Position | None:
    """Return the position of the last record in a source's former partitions; None where there is none."""
    learn([route], names(admin) if any(file.patterns(stream) for stream in file.streams) else ())
    with reading(file.kafka, file.group) as client:
        return read_last_record(client, route.source, list(route.topics), sorted(number for _, number in held.offsets))


def _holder(entries: Entries, place: Partition) -> str:
    """Return the source whose position a partition holds; NOBODY for none."""
    return entries[place][1].source if place in entries else NOBODY


def _check_leaving(route: SourceRoute, entries: Entries, moving: Collection[str]) -> None:
    """Refuse partitions that hold the position of a source that does not leave them."""
    for place in route.places:
        holder = _holder(entries, place)
        if holder != NOBODY and holder not in moving:
            raise NeedsOperator(
                f"{place[0]}[{place[1]}] is {route.source}'s by the bridge's file, and holds the position of {holder}, which "
                "would be lost",
                hint=f"If {holder} has other partitions in the file: 'headrace bridge move {route.source} {holder}' moves both "
                f"at once. If it was retired: 'headrace bridge forget {holder}' first.",
            )


def commit_positions(
    file: BridgeFile,
    admin: Any,
    positions: Mapping[str, Position | None],
    by: str,
    group: Reading,
    former: Sequence[Any] = (),
) -> None:
    """Commit positions at the ends of the partitions that the file gives their sources, with what `former` ones then hold.

    One request commits all of them, and what Kafka then holds is read back. `by` is noted as the bridge that did it, and `group`
    is by what the positions were chosen. Part of a step of `once_stopped`; raises NeedsOperator when Kafka holds something else
    afterwards.
    """
    by_source = {source: route for source, route in routes(file).items() if source in positions}
    wanted = {
        place for route in by_source.values() for place in [*route.places, route.withheld_place] if place is not None
    }
    ends: dict[Partition, int] = {}
    if wanted:
        with translated("read the ends of topics"):
            asked = admin.list_offsets(
                {TopicPartition(*place): OffsetSpec.latest() for place in wanted}, request_timeout=TIMEOUT
            )
            ends = {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}
    offsets = list(former)
    for source, route in by_source.items():
        # Nothing is withheld, and what is there already is none of this source's any more.
        withheld = Withheld(ends[route.withheld_place]) if route.withheld_place is not None else NOTHING
        text = position_text(source, positions[source], by, withheld, route.partitions)
        offsets += [TopicPartition(*place, ends[place], metadata=text) for place in route.places]
    _commit(file, group, offsets)


@once_stopped
def forget(file: BridgeFile, admin: Any, source: str, *, discard_withheld: bool = False) -> Committed:
    """Forget the committed position of a source that the file has no more; return what was committed.

    Its records stay, but for withheld ones. Raises NeedsOperator when the file still has the source, when the group holds nothing
    of it, when tables of it are withheld (unless `discard_withheld`), or when bridges of the group are running: one of them may
    serve it.
    """
    if any(source in stream.sources for stream in file.streams.values()):
        raise NeedsOperator(
            f"{source} is in {file.path}: its bridge would find the position again in the source's last record",
            hint="Take it out of the files of all bridges that share sources with this one, and run this again.",
        )
    group = read_group(file, {file.topic(stream) for stream in file.streams})
    held, refused = committed_of(source, group.entries), group.refused.values()
    if held is None and refused:
        messages, hints = {each.message for each in refused}, {each.hint for each in refused}
        raise NeedsOperator(
            f"group {file.group} holds no position of {source}, unless one of these had it: {'; '.join(sorted(messages))}",
            hint=f"First put the sources right that have these partitions. {' '.join(sorted(hints))}",
        )
    if held is None:
        raise NeedsOperator(
            f"group {file.group} holds no position of {source} in the topics of {file.path}",
            hint="Check the name: it is REGION/NAME, as the edge's file has it in [source] name. The file has to have "
            "the stream that the source was in.",
        )
    if (waiting := withheld_tables(held)) and not discard_withheld:
        raise NeedsOperator(
            f"{source} has withheld tables, whose records are in no other topic: {', '.join(sorted(waiting))}",
            hint="Give the source back to the bridges, have the registry take the tables' schemas, and forget it once "
            "'headrace bridge positions' shows none; or give the records up with --discard-withheld.",
        )
    nobody = position_text(NOBODY, None, "headrace bridge forget")
    _commit(file, group, [TopicPartition(*place, offset, metadata=nobody) for place, offset in held.offsets.items()])
    _delete_withheld(file, admin, held)
    return held


def _delete_withheld(file: BridgeFile, admin: Any, held: Committed) -> None:
    """Leave no withheld records of a source that is gone to whoever gets its partitions."""
    if held.withheld is None:
        return
    topic, partition = min(held.offsets)
    withheld = next((file.withheld_topic(stream) for stream in file.streams if file.topic(stream) == topic), "")
    if withheld:
        with translated(f"delete withheld records in {withheld}[{partition}]"):
            for answer in admin.delete_records([TopicPartition(withheld, partition, held.withheld.end)]).values():
                answer.result()


def _commit(file: BridgeFile, group: Reading, offsets: list[Any]) -> None:
    """Commit offsets for the group, which has to be without members, and to hold what was read of it.

    Reads back what the group then holds: Kafka may refuse some partitions and take others.
    """
    # Kafka refuses the commit while there are members. One that came and went since the reading may have committed.
    if read_group(file, group.topics).entries != group.entries:
        raise _Running(file.group)
    try:
        commit_offsets(file.kafka, file.group, offsets)
    except KafkaException as error:
        code = error.args[0].code()
        if code in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}:
            raise _Running(file.group) from error
        with translated(f"commit positions of group {file.group}"):
            raise
    _check_committed(file, offsets)


def _check_committed(file: BridgeFile, offsets: Collection[Any]) -> None:
    """Raise NeedsOperator unless the group holds what was committed."""
    places = {(each.topic, each.partition): parse(each.metadata) for each in offsets}
    with reading(file.kafka, file.group) as client:
        there = read_entries(client, file.group, places)
    other = [place for place, text in places.items() if place not in there or there[place][1] != text]
    if other:
        named = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(other))
        raise NeedsOperator(
            f"Kafka does not hold what was committed for {named} of group {file.group}",
            hint="Look at 'headrace bridge positions', and at the rights of the bridge's user; then run this again.",
        )
