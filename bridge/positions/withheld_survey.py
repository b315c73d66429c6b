"""What a bridge finds of withheld records when it takes sources over; refused where the committed position does not have it."""

from collections.abc import Collection, Mapping
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaException, OffsetSpec, TopicPartition
from bridge.kafka.errors import error_of, translated
from bridge.kafka.whole_partition import records
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from bridge.model.withheld_tables import Withheld
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable


def known_withheld(
    client: Any, admin: Any, routes: Mapping[str, SourceRoute], found: Mapping[str, Committed | ReplicationError]
) -> dict[str, Committed | ReplicationError]:
    """Return those of the sources that are to be changed: with what is withheld, or with the error that keeps them from going on.

    A source whose committed position never had withheld tables, or is lost, must have no withheld records: whoever went on then
    would write a table's later records ahead of them. Raises NotConnected.
    """
    changed: dict[str, Committed | ReplicationError] = {}
    places: dict[str, Partition] = {}
    for source, committed in found.items():
        place = routes[source].withheld_place
        if isinstance(committed, ReplicationError):
            continue
        if place is not None:
            places[source] = place
        elif committed.withheld is not None and committed.withheld.tables:
            changed[source] = NeedsOperator(
                f"tables of {source} are withheld, and by the bridge's file none can be: "
                f"{', '.join(sorted(committed.withheld.tables))}",
                hint="Give the file its [registry] and the stream's tables again, until the tables are released.",
            )
    ends = bounds(admin, places.values())
    for source, place in places.items():
        known, there = found[source], ends[place]
        assert isinstance(known, Committed)
        if isinstance(there, ReplicationError):
            # No other source's affair.
            changed[source] = there
            continue
        low, high = there
        if known.withheld is not None and known.withheld.end <= high:
            continue
        if known.withheld is not None and known.withheld.tables:
            changed[source] = NeedsOperator(
                f"{place[0]}[{place[1]}] ends at offset {high}, and withheld records of {source} are up to "
                f"{known.withheld.end}: {', '.join(sorted(known.withheld.tables))}",
                hint="The topic was made again, or the file names another one by its prefix. Put the former one back: these "
                "records are in no other.",
            )
        # What is left of transactions that were aborted is no record.
        elif low < high and any(True for _ in records(client, *place)):
            changed[source] = NeedsOperator(
                f"{place[0]}[{place[1]}] holds withheld records, and no committed position of {source} has where they belong",
                hint="Positions were lost, or the partition was another source's. Find out from its records' keys and headers "
                "what is in no other topic; then delete the records, and copy their tables again.",
            )
        else:
            changed[source] = known._replace(withheld=Withheld(high))
    return changed


def bounds(admin: Any, places: Collection[Partition]) -> dict[Partition, tuple[int, int] | ReplicationError]:
    """Return the first offset of some partitions and the one after the last, or why it is not known; raise NotConnected."""
    found: dict[Partition, tuple[int, int] | ReplicationError] = {**_unreadable(admin, places)}
    readable = [place for place in places if place not in found]
    if not readable:
        return found
    with translated("read the ends of topics"):
        asked = [
            admin.list_offsets({TopicPartition(*place): spec for place in readable}, request_timeout=PATIENCE)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
    low, high = ({(place.topic, place.partition): answer for place, answer in answers.items()} for answers in asked)
    for place in readable:
        try:
            with translated(f"read the ends of {place[0]}[{place[1]}]"):
                found[place] = low[place].result().offset, high[place].result().offset
        except (NeedsOperator, Retryable) as error:
            found[place] = error
    return found


def _unreadable(admin: Any, places: Collection[Partition]) -> dict[Partition, ReplicationError]:
    """Return those of some partitions that are not there, or have no leader: the ends of no other one are known with them."""
    found: dict[Partition, ReplicationError] = {}
    for topic in {topic for topic, _ in places}:
        with translated(f"read the partitions of {topic}"):
            known = admin.list_topics(topic, timeout=PATIENCE).topics[topic]
        for place in [place for place in places if place[0] == topic]:
            if known.error is not None:
                found[place] = error_of(KafkaException(known.error), f"read the ends of {topic}")
            elif place[1] not in known.partitions:
                found[place] = NeedsOperator(f"{topic} has no partition {place[1]}", hint="Run 'headrace bridge init'.")
            elif known.partitions[place[1]].leader < 0:
                found[place] = NotConnected(
                    f"Kafka: {topic}[{place[1]}] has no leader", hint="Look at the brokers: 'headrace bridge doctor'."
                )
    return found
