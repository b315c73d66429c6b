"""What a bridge finds of withheld records when it takes sources over; refused where the committed position does not have it."""

from collections.abc import Mapping
from typing import Any

from bridge.kafka.entries import records
from bridge.kafka.last_record import bounds
from bridge.model.ports import Committed, Partition
from bridge.model.position_text import Withheld
from bridge.model.route import SourceRoute
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable


def known_withheld(
    client: Any,
    admin: Any,
    routes: Mapping[str, SourceRoute],
    positions: Mapping[str, Committed | ReplicationError | None],
) -> dict[str, Committed | ReplicationError | None]:
    """Return those of the sources that are to be changed: with what is withheld, or with the error that keeps them from going on.

    A source whose committed position never had withheld tables, or is lost, must have no withheld records: whoever went on then
    would write a table's later records ahead of them. Without a client, None where records have to be read for that.
    """
    changed: dict[str, Committed | ReplicationError | None] = {}
    places: dict[str, Partition] = {}
    for source, committed in positions.items():
        place = routes[source].withheld_place
        if committed is None or isinstance(committed, ReplicationError):
            continue
        if place is not None:
            places[source] = place
        elif committed.withheld is not None and committed.withheld.tables:
            changed[source] = NeedsOperator(
                f"tables of {source} are withheld, and by the bridge's file none can be: "
                f"{', '.join(sorted(committed.withheld.tables))}",
                hint="Give the file its [registry] and the stream's tables again, until the tables are released.",
            )
    try:
        ends = bounds(admin, places.values())
    except (NotConnected, Retryable, NeedsOperator) as error:
        return changed | dict.fromkeys(places, error)
    for source, place in places.items():
        committed, there = positions[source], ends[place]
        assert isinstance(committed, Committed)
        try:
            if isinstance(there, ReplicationError):
                raise there
            changed[source] = _look(client, source, committed, place, there)
        except ReplicationError as error:
            # No other source's affair.
            changed[source] = error
    return changed


def _look(
    client: Any, source: str, committed: Committed, place: Partition, ends: tuple[int, int]
) -> Committed | ReplicationError | None:
    """Return what one source goes on with, given where the partition of its withheld records begins and ends."""
    (low, high), withheld = ends, committed.withheld
    if withheld is not None and withheld.end <= high:
        return committed
    if withheld is not None and withheld.tables:
        return NeedsOperator(
            f"{place[0]}[{place[1]}] ends at offset {high}, and withheld records of {source} are up to "
            f"{withheld.end}: {', '.join(sorted(withheld.tables))}",
            hint="The topic was made again, or the file names another one by its prefix. Put the former one back: these "
            "records are in no other.",
        )
    # What is left of transactions that were aborted is no record.
    if low < high and client is None:
        return None
    if low < high and any(True for _ in records(client, *place)):
        return NeedsOperator(
            f"{place[0]}[{place[1]}] holds withheld records, and no committed position of {source} has where they belong",
            hint="Positions were lost, or the partition was another source's. Find out from its records' keys and headers "
            "what is in no other topic; then delete the records, and copy their tables again.",
        )
    return committed._replace(withheld=Withheld(high))
