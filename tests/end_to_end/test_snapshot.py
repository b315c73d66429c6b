"""Rows of before capture, copied beside writers while edge and bridge are killed: in the end Kafka leads to the very rows.

Without bridge and Kafka, at each engine: tests/contract/test_snapshots_under_load.py.
"""

import json
import random

import pytest

from edge.snapshot.store import SnapshotStore
from tests.end_to_end.pipeline import Pipeline, headrace
from tests.history import truth
from tests.history.state import check_state
from tests.rules.waiting import eventually

EXISTING = """
    CREATE TABLE stock (id bigint PRIMARY KEY, sku text NOT NULL, price numeric(12,2), note text, placed timestamptz);
    INSERT INTO stock SELECT i, 'SKU-' || i, i / 7.0, CASE WHEN i % 5 > 0 THEN repeat('n', i % 90) END, now()
    FROM generate_series(1, 30000) AS i;
    CREATE TABLE listed (region text, id uuid, body text, PRIMARY KEY (region, id));
    INSERT INTO listed SELECT 'r' || i % 7, gen_random_uuid(), md5(i::text) FROM generate_series(1, 3000) AS i;
    CREATE FUNCTION disturb() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE stock SET price = price + 1 WHERE id = NEW.aid % 30000;
        DELETE FROM stock WHERE id = NEW.aid * 31 % 30000;
        RETURN NULL;
    END $$;
    CREATE TRIGGER disturb AFTER INSERT ON pgbench_history FOR EACH ROW EXECUTE FUNCTION disturb();
"""
COPIED = ["public.listed", "public.pgbench_tellers", "public.stock"]


@pytest.mark.long
def test_tables_copied_under_load_and_kills_are_the_same_at_the_source_and_in_kafka(
    pipeline: Pipeline,
) -> None:
    chance = random.Random()
    # Given rows that are in no log, and writers.
    pipeline.start(EXISTING)
    for region in pipeline.regions:
        region.workload.start()

    # When tables are copied, one of which has no key, and edges and bridge are killed meanwhile.
    for region in pipeline.regions:
        headrace("edge", "snapshot", *COPIED, "public.pgbench_history", "--config", str(region.edge_file))
    for number in range(4):
        pipeline.wait_for_more(chance.randrange(100, 1_200))
        (pipeline.bridge if number == 2 else pipeline.regions[number % 2].edge).kill()
    for region in pipeline.regions:
        eventually(lambda region=region: _ended(region), 400, every=0.5, saying=f"{region.source} is copied")
        status = json.loads(headrace("edge", "snapshot", "--status", "--json", "--config", str(region.edge_file)))
        states = {it["table"]: it["state"] for it in status["tables"]}
        assert states == dict.fromkeys([*COPIED, "public.pgbench_history"], "done")
    pipeline.stop_writers()

    # Then the topic's records lead to the very rows, with no change lost, doubled or out of order.
    eventually(lambda: _state(pipeline) == {}, 180, every=3, saying="the records lead to the rows of the database")
    assert pipeline.differences() == {}


def _ended(region):
    region.edge.check()
    # What the command shows, without a process for each look.
    folder = SnapshotStore(region.edge_file.with_name(f"state-{region.edge_file.stem}"), region.source)
    tables = folder.plan().tables
    return not folder.waiting() and tables and not any(it.unfinished for it in tables)


def _state(pipeline):
    topic, results = pipeline.records(), {}
    for region in pipeline.regions:
        with region.connection() as connection:
            keys = truth.keys(connection)
            stored = {table: truth.stored(connection, table) for table in COPIED}
        results[region.source] = check_state(region.source, topic, stored, keys)
    return {source: differences for source, differences in results.items() if differences}
