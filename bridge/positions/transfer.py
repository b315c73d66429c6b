"""Positions of sources as a file: a copy for the day on which Kafka is lost, and for the move to another cluster.

A position is no secret and holds no row. It is put where nothing is committed of its source, never over another one: a lower
position would write records twice, a higher one leave some out. Called by `headrace bridge export` and `import`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bridge.kafka.entries import read_entries, reading
from bridge.kafka.topics import names
from bridge.model.ports import Committed
from bridge.model.route import learn, routes
from bridge.positions.last_record import read_last_record
from bridge.positions.read import check_free, check_reordered
from bridge.positions.survey import commit_positions, once_stopped, positions_of, read_group, withheld_tables
from headrace.configuration.bridge import BridgeFile
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, ReplicationError
from headrace.formats import EXPORTED_POSITIONS, UNREADABLE
from headrace.position import Position


class SourcePosition(msgspec.Struct, frozen=True):
    """A source's committed position; text form `epoch/commit/ordinal`."""

    source: str
    position: str
    #: ISO 8601, UTC.
    committed_at: str = ""
    #: The tables whose records were in no topic but that of withheld ones.
    withheld: list[str] = []
    #: The numbers of its partitions in the order by which keys are shared out; empty where it has one, or that is not known.
    partitions: list[int] = []


class Export(msgspec.Struct, frozen=True):
    """What `headrace bridge export` prints."""

    version: int
    #: The group of bridges from which the positions come, for whoever reads the file.
    group: str
    sources: list[SourcePosition]


def export_positions(file: BridgeFile) -> tuple[Export, dict[str, ReplicationError]]:
    """Return the committed positions of a file's sources, without those that have none; and the errors of those not known."""
    committed = positions_of(file)
    errors = {source: each for source, each in committed.items() if isinstance(each, ReplicationError)}
    sources = [
        SourcePosition(source, str(each.position), each.at, sorted(withheld_tables(each)), list(each.order))
        for source, each in committed.items()
        if isinstance(each, Committed) and each.position is not None
    ]
    # Releases that know nothing of withheld tables read all others.
    version = EXPORTED_POSITIONS.version if any(each.withheld for each in sources) else EXPORTED_POSITIONS.oldest
    return Export(version, file.group, sources), errors


def read_export(data: bytes, where: str) -> Export:
    """Return what a file holds; raise ConfigurationError when it is none of `headrace bridge export`, NeedsOperator if newer."""
    try:
        version = msgspec.json.decode(data, type=dict)["version"]
        EXPORTED_POSITIONS.check(version, where)
        export = msgspec.json.decode(data, type=Export)
        for each in export.sources:
            Position.parse(each.position)
    except (KeyError, TypeError, CorruptInput, *UNREADABLE) as error:
        raise ConfigurationError(
            f"{where} is not what 'headrace bridge export' prints", hint="Give the file as it was printed."
        ) from error
    return export


@once_stopped
def import_positions(
    file: BridgeFile, admin: Any, export: Export, *, only: Sequence[str] = (), accept_gap: bool = False
) -> list[tuple[str, str]]:
    """Commit the positions of a file's sources; return (source, what was done) for each of the export.

    Everything is checked before anything is committed. Raises NeedsOperator when another position is committed for a source, when
    its partitions hold records beyond the position, or (unless `accept_gap`) end before it or tables were withheld, and when
    bridges of the group run.
    """
    by_source, wanted = routes(file), {each.source: each for each in export.sources if not only or each.source in only}
    missing = sorted((set(only) - set(wanted)) | (set(wanted) - set(by_source)))
    if missing:
        raise ConfigurationError(
            f"not both in the bridge's file and in the export: {', '.join(missing)}",
            hint="Add these sources to the bridge's file, or name those to import with --source.",
        )
    group, held = read_group(file), dict[str, Committed | None]()
    for source, committed in positions_of(file, group).items():
        if source in wanted:
            if isinstance(committed, ReplicationError):
                raise committed
            held[source] = committed
    differing = [
        f"{source} is at {each.position}, the export has {wanted[source].position}"
        for source, each in held.items()
        if each is not None and each.position not in {None, Position.parse(wanted[source].position)}
    ]
    if differing:
        raise NeedsOperator(
            f"other positions are committed in group {file.group}: {'; '.join(differing)}",
            hint="A position is never replaced: going on from another one would lose or repeat changes. Leave these sources out "
            "with --source.",
        )
    absent = [each for each in wanted.values() if (there := held[each.source]) is None or there.position is None]
    _check_withheld(absent, accept_gap=accept_gap)
    for each in absent:
        check_reordered(by_source[each.source], each.partitions)
    positions = {each.source: Position.parse(each.position) for each in absent}
    _check(file, admin, positions, accept_gap=accept_gap)
    if positions:
        commit_positions(file, admin, positions, "headrace bridge import", group)
    return [
        (source, f"goes on after {each.position}" if source in positions else f"is at {each.position} already")
        for source, each in wanted.items()
    ]


def _check_withheld(sources: Sequence[SourcePosition], *, accept_gap: bool) -> None:
    """Refuse sources of which records were in no topic that can be gone on with."""
    waiting = [f"{table} of {each.source}" for each in sources for table in each.withheld]
    if waiting and not accept_gap:
        raise NeedsOperator(
            f"tables were withheld when the positions were exported: {', '.join(waiting)}",
            hint="Their records from then on are in the former cluster's topic of withheld records alone. If that is lost, use "
            "--accept-gap, and copy these tables again with 'headrace edge snapshot TABLE --replace'.",
        )


def _check(file: BridgeFile, admin: Any, wanted: Mapping[str, Position], *, accept_gap: bool) -> None:
    """Refuse what the records in the sources' partitions contradict, and partitions that are another source's."""
    by_source = routes(file)
    if any(file.patterns(stream) for stream in file.streams):
        # The topics that patterns are for may have the last records.
        learn(by_source.values(), names(admin))
    with reading(file.kafka, file.group) as client:
        for source, position in wanted.items():
            route = by_source[source]
            others = {other: its for other, its in by_source.items() if other != source}
            check_free(route, read_entries(client, file.group, route.places), others)
            tail = read_last_record(client, source, list(route.topics), route.partitions)
            if tail is not None and tail > position:
                raise NeedsOperator(
                    f"the last record of {source} in {route.topic} is at {tail}, beyond {position} of the export",
                    hint="Leave the source out with --source: the bridge reads its position back from that record.",
                )
            if tail is not None and tail < position and not accept_gap:
                raise NeedsOperator(
                    f"the last record of {source} in {route.topic} is at {tail}, and the export is at {position}: records "
                    "between them may be missing in this cluster",
                    hint="Finish copying the topic. If nothing is missing, or it is to be missing, use --accept-gap.",
                )
