"""The edge's records with `profile = "debezium"` beside those of Debezium's PostgreSQL connector, over one database."""

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.debezium.compare import by_reason, by_transaction, differences, records
from tests.debezium.intended import ENVELOPE, KINDS, TEXTS, VALUES
from tests.debezium.workload import COUNTS, ROWS, TABLES, TYPES, WORK
from tests.rules.waiting import eventually

#: Transactions of the work that change rows: all but the `alter table` and the `truncate`, which is no record.
TRANSACTIONS = 13


@pytest.mark.timeout(600)
def test_changes_of_every_kind_are_written_as_debezium_writes_them(both):
    result = both(TABLES, WORK, COUNTS)
    ours, theirs = (by_transaction(records, number) for records in result.pop("transaction"))
    assert ours == theirs[: 2 * TRANSACTIONS]
    # of the truncate Debezium writes that nothing of it is in the stream; here it has neither record
    assert [(status, count) for status, *_, count, _, _ in theirs[2 * TRANSACTIONS :]] == [("BEGIN", None), ("END", 0)]

    remaining = {table: by_reason(differences(*pair), ENVELOPE | KINDS) for table, pair in result.items()}
    assert {table: unintended for table, (unintended, _) in remaining.items() if unintended} == {}
    # What is listed and occurs nowhere is not intended, it is out of date.
    assert set.intersection(*(absent for _, absent in remaining.values())) == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (
            {"decimal": "string", "time": "isostring", "binary": "hex", "interval": "string", "hstore": "map"},
            {
                "decimal.handling.mode": "string",
                "time.precision.mode": "isostring",
                "binary.handling.mode": "hex",
                "interval.handling.mode": "string",
                "hstore.handling.mode": "map",
            },
        ),
        (
            {"decimal": "double", "time": "connect", "binary": "base64-url-safe"},
            {
                "decimal.handling.mode": "double",
                "time.precision.mode": "connect",
                "binary.handling.mode": "base64-url-safe",
            },
        ),
        *(
            ({"time": mode}, {"time.precision.mode": mode})
            for mode in ("adaptive_time_microseconds", "microseconds", "nanoseconds")
        ),
    ],
    ids=lambda given: " ".join(given.values()) or "default",
)
def test_values_of_every_type_are_written_as_debezium_writes_them(both, ours, theirs):
    rows = ROWS
    if ours.get("time") == "nanoseconds":
        # Of other years the nanoseconds have more than 64 bits: Debezium writes null, and our edge stops.
        years = {"'0001-01-01 00:": "'1678-01-01 00:", "'9999-12-31 23:": "'2261-12-31 23:"}
        for former, year in years.items():
            rows = [row.replace(former, year) for row in rows]
    (pair,) = both(TYPES, rows, {"types": 9}, ours, theirs).values()

    intended = ENVELOPE | VALUES
    if ours.get("decimal") == "string":
        intended |= TEXTS
    unintended, absent = by_reason(differences(*pair), intended)
    assert unintended == {}
    assert absent == set()


@pytest.fixture
def both(database, edges, brokers, inside, connect, tmp_path):
    """Return a function that has both capture some work.

    It returns for each table our records and Debezium's; `tables` has how many Debezium writes.
    """

    def captured(tables_sql, work, tables, ours=None, theirs=None):
        database.execute(tables_sql)
        prefixes = [f"{product}-{database.name}" for product in ("ours", "theirs")]
        given = {"topic": prefixes[0], "tables": {f"public.{table}": "delete" for table in tables}}
        given["more"] = "transaction_topic = true\n"
        file = load(bridge_file(tmp_path, brokers.bootstrap, {"jakarta/bank": [0]}, **given), BridgeFile)
        make(admin(file.kafka), file)
        bridge = inside(brokers.bootstrap, {"jakarta/bank": [0]}, **given)
        chosen = "".join(f'{name} = "{value}"\n' for name, value in ({"profile": "debezium"} | (ours or {})).items())
        edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=f"[records]\n{chosen}transactions = true\n")
        edge.init()
        connect.add(prefixes[1], connector(database, prefixes[1]) | (theirs or {}))
        # It begins with what is committed after its slot was made.
        reading = "select active from pg_replication_slots where slot_name = %s"
        slot = [f"{database.name}_debezium"]
        eventually(lambda: database.execute(reading, slot) == [(True,)], 120, saying="Debezium reads")
        with edge.running():
            for statement in work:
                database.execute(statement)
            results = {
                table: [records(brokers.bootstrap, f"{prefix}.public.{table}", count) for prefix in prefixes]
                for table, count in tables.items()
            }
            if work is WORK:
                counts = zip(prefixes, (TRANSACTIONS, TRANSACTIONS + 1), strict=True)
                results["transaction"] = [
                    records(brokers.bootstrap, f"{prefix}.transaction", 2 * count) for prefix, count in counts
                ]
        # Shown where the test fails.
        print(connect.log.read_text()[-8000:])
        connect.remove(prefixes[1])
        return results

    return captured


def number(transaction):
    """Return the number of a transaction without the LSN that follows it, which is another with each product."""
    return transaction.partition(":")[0]


def connector(database, prefix):
    """Return the settings of Debezium's connector, with its defaults but for what the test needs."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.postgres.port,
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database.name,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": f"{database.name}_debezium",
        "slot.drop.on.stop": "true",
        "publication.name": database.name,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "true",
        "tasks.max": 1,
    }
