"""What a bridge finds of withheld records when it takes sources over; refused where the committed position does not have it."""

from collections.abc import Collection, Mapping
from typing import Any

from bridge.kafka.client import PATIENCE, OffsetSpec, TopicPartition
from bridge.kafka.errors import translated
from bridge.kafka.ports import Committed, Partition
from bridge.kafka.whole_partition import records
from bridge.source.route import SourceRoute
from bridge.withheld.tables import Withheld
from headrace.errors import NeedsOperator, ReplicationError


def known_withheld(
    client: Any, admin: Any, routes: Mapping[str, SourceRoute], found: Mapping[str, Committed | ReplicationError]
) -> dict[str, Committed | ReplicationError]:
    """Return those of the sources that are to be changed: with what is withheld, or with the error that keeps them from going on.

    A source whose committed position never had withheld tables, or is lost, must have no withheld records: whoever went on then
    would write a table's later records ahead of them. Raises NotConnected.
    """
    changed: dict[str, Committed | ReplicationError] = {}
    unknown: dict[str, Partition] = {}
    for source, committed in found.items():
        place = routes[source].withheld_place
        if isinstance(committed, ReplicationError):
            continue
        if committed.withheld is None and place is not None:
            unknown[source] = place
        elif committed.withheld is not None and committed.withheld.tables and place is None:
            changed[source] = NeedsOperator(
                f"tables of {source} are withheld, and by the bridge's file none can be: "
                f"{', '.join(sorted(committed.withheld.tables))}",
                hint="Give the file its [registry] and the stream's tables again, until the tables are released.",
            )
    ends = bounds(admin, unknown.values())
    for source, place in unknown.items():
        low, high = ends[place]
        # What is left of transactions that were aborted is no record.
        if low < high and any(True for _ in records(client, *place)):
            changed[source] = NeedsOperator(
                f"{place[0]}[{place[1]}] holds withheld records, and no committed position of {source} has where they belong",
                hint="Positions were lost, or the partition was another source's. Find out from its records' keys and headers "
                "what is in no other topic; then delete the records, and copy their tables again.",
            )
        else:
            known = found[source]
            assert isinstance(known, Committed)
            changed[source] = known._replace(withheld=Withheld(high))
    return changed


def bounds(admin: Any, places: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return the first offset of some partitions and the one after the last; raise NotConnected, or NeedsOperator."""
    if not places:
        return {}
    with translated("read the ends of topics"):
        low, high = (
            admin.list_offsets({TopicPartition(*place): spec for place in places}, request_timeout=PATIENCE)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        found: tuple[dict[Partition, int], ...] = tuple(
            {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}
            for asked in (low, high)
        )
    return {place: (found[0][place], found[1][place]) for place in places}
