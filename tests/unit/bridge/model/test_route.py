"""Topics of tables: what a record is about is read from its source, never from its row."""

import pytest

from bridge.model.route import TablePatterns, TableRouter
from bridge.routing.partitioner import share_out
from edge.mysql import envelope as mysql
from edge.postgres import envelope as postgres
from edge.records.envelope import copy_mark, transaction_begin
from headrace.batch import Batch
from headrace.configuration.bridge import TableTopic
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import COPY_BEGINS, TableSchema

ACCOUNTS, TRANSFERS = "bank.public.accounts", "bank.public.transfers"
EPOCH = 1_700_000_000


@pytest.fixture
def tables():
    return TableRouter(
        "bank",
        {
            "public.accounts": TableTopic(ACCOUNTS, "delete"),
            "public.transfers": TableTopic(TRANSFERS, "compact"),
            'pub"lic.a,ö': TableTopic("bank.pub_lic.a__", "delete"),
        },
    )


def value(schema, table, row=b'{"id":1}', end=b',"txId":7,"position":"p"},"op":"c"}'):
    return (
        b'{"before":null,"after":%b,"source":{"version":"0.1.0","connector":"postgresql","db":"bank","schema":%b,"table":%b%b'
        % (row, schema, table, end)
    )


def test_a_record_goes_to_the_topic_of_its_table(tables):
    assert tables.topic_of(b"1", value(b'"public"', b'"accounts"')) == ACCOUNTS
    assert tables.topic_of(None, value(b'"public"', b'"accounts"')) == ACCOUNTS
    # In JSON, as the edge writes it.
    assert tables.topic_of(b"1", value(rb'"pub\"lic"', '"a,ö"'.encode())) == "bank.pub_lic.a__"


def test_what_is_about_no_table_goes_to_the_streams_own_topic(tables):
    assert tables.topic_of(b"1", value(b'""', b'""')) == "bank"


def test_where_transactions_begin_and_end_has_a_topic_of_its_own_if_asked_for(tables):
    end = b'{"status":"END","id":"7:9","event_count":1,"data_collections":[],%b' % value(b'""', b'""')[1:]
    assert tables.topic_of(b"1", end) == "bank"
    asked = TableRouter("bank", {"public.accounts": TableTopic(ACCOUNTS, "delete")}, transactions="bank.transaction")
    assert asked.topics == {"bank": "delete", "bank.transaction": "delete", ACCOUNTS: "delete"}
    assert asked.topic_of(b"1", end) == asked.topic_of_no_table(end) == "bank.transaction"
    # and nothing else goes there
    assert asked.topic_of(b"1", value(b'"public"', b'"accounts"', b'{"status":"END"}')) == ACCOUNTS
    assert asked.topic_of(b"1", value(b'""', b'""')) == asked.topic_of_no_table(value(b'""', b'""')) == "bank"


def test_a_row_that_looks_like_a_source_decides_nothing(tables):
    note = rb'"note":"\"source\":{\"version\":\"1\",\"schema\":\"public\",\"table\":\"transfers\""'
    row = b'{"id":1,%b,"schema":"x","table":"y"}' % note
    assert tables.topic_of(b"1", value(b'"public"', b'"accounts"', row)) == ACCOUNTS
    # Nor do columns that are named so.
    row = b'{"source":"x","schema":"public","table":"transfers"}'
    assert tables.topic_of(b"1", value(b'"public"', b'"accounts"', row)) == ACCOUNTS


def test_a_record_without_a_key_stays_out_of_a_compacted_topic(tables):
    assert tables.topic_of(b"1", value(b'"public"', b'"transfers"')) == TRANSFERS
    assert tables.topic_of(None, value(b'"public"', b'"transfers"')) == "bank"


def test_a_table_without_a_topic_goes_to_the_streams_own_one_and_is_named_once_o10(tables, caplog):
    for _ in range(3):
        assert tables.topic_of(b"1", value(b'"public"', b'"loans"')) == "bank"
        assert tables.topic_of(b"1", value(b'"public"', b'"accounts"')) == ACCOUNTS
    assert tables.without_topic == {"public.loans"}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "table public.loans has no topic: its records go to bank" in line
    assert "headrace bridge init" in line


def test_a_pattern_is_for_the_topics_that_there_are_o10():
    patterns = TablePatterns("bank", {"public.log_*": "compact", "public.*": "delete", "*.ö*": "delete"})
    tables = TableRouter("bank", {"public.accounts": TableTopic(ACCOUNTS, "compact")}, patterns)
    tables.learn(
        ["bank", "bank.public.loans", "bank.public.log_1", "bank.other.x", "bank.x._y", "other.public.z", ACCOUNTS]
    )
    assert tables.topics == {
        "bank": "delete",
        "bank.public.loans": "delete",
        "bank.public.log_1": "compact",
        "bank.x._y": "delete",
        ACCOUNTS: "compact",
    }
    topics = {
        name: tables.topic_of(
            b"1", value(b'"%b"' % name.partition(".")[0].encode(), b'"%b"' % name.partition(".")[2].encode())
        )
        for name in ("public.loans", "public.log_1", "public.new", "other.x", "x.öy", "public.accounts")
    }
    assert topics == {
        "public.loans": "bank.public.loans",
        "public.log_1": "bank.public.log_1",
        "public.new": "bank",
        "other.x": "bank",
        "x.öy": "bank.x._y",
        "public.accounts": ACCOUNTS,
    }
    assert tables.without_topic == {"public.new", "other.x"}
    # a compacted topic takes no record without a key
    assert tables.topic_of(None, value(b'"public"', b'"log_1"')) == "bank"


@pytest.mark.parametrize("wrong", [b"", b"{}", b'{"schema":"public","table":"accounts"}', value(b'"p"', rb'"\ud8"')])
def test_a_record_that_tells_of_no_table_is_refused(tables, wrong):
    with pytest.raises(CorruptInput):
        tables.topic_of(b"1", wrong)


def test_edges_of_every_engine_say_it_where_it_is_looked_for(tables):
    around = postgres.Around(b"1", b'7,"lsn":9,"position":"p/', b"0", b"5", b"1}")
    at_postgres = postgres.Table(source="jakarta/bank", database="bank", schema="public", table="accounts")
    for reported in (at_postgres, at_postgres.for_snapshot()):
        assert tables.topic_of(b"1", b'{"before":null,"after":{"id":1},' + reported.rest(b"c", around)) == ACCOUNTS
    no_table = postgres.Table(source="jakarta/bank", database="bank", schema="", table="")
    source = no_table.source(postgres.Transaction(epoch=EPOCH, commit=9, commit_ms=1, xid=7), 0)
    assert tables.topic_of(*transaction_begin(b'"7:9"', source, 5)) == "bank"
    at_mysql = mysql.Table(connector="mariadb", source="london/bank", database="public", table="accounts")
    transaction = mysql.Transaction(epoch=EPOCH, commit=9, commit_us=1000, server_id=1, gtid="0-1-2", file="binlog.1")
    assert tables.topic_of(b"1", b'{"after":{"id":1},' + at_mysql.middle(transaction) + b'0"}}') == ACCOUNTS


def test_a_transaction_is_shared_out_by_table_and_key(tables):
    # given a beginning, a schema record, two changes, a delete with its tombstone in another table, and a marker
    accounts, transfers, nothing = (b'"public"', b'"accounts"'), (b'"public"', b'"transfers"'), (b'""', b'""')
    begin, schema, message = value(*nothing, b"0"), value(*accounts, b"1"), value(*nothing, b"5")
    first, two, delete = value(*accounts, b"2"), value(*accounts, b"3"), value(*transfers, b"4")
    batch = Batch(
        source="jakarta/bank",
        follows=Position(EPOCH, 8, 0),
        first=Position(EPOCH, 9, 0),
        last=Position(EPOCH, 9, 3),
        segments=[(9, 0, 1), (9, 0, 1), (9, 0, 3), (9, 2, 1), (9, 3, 1)],
        keys=[b"t", None, b'{"id":1}', b'{"id":2}', b'{"id":1}', b'{"id":1}', b"m"],
        values=[begin, schema, first, two, delete, None, message],
    )
    # when
    results = {
        (topic, partition): list(zip(keys, values, strict=True))
        for topic, partition, keys, values, _ in share_out(batch, 0, "bank", [0, 1], tables)
    }
    # then each table's records are in its topic, by key; the schema record in every partition of the stream's own
    at = {key: partition for (topic, partition), pairs in results.items() if topic == ACCOUNTS for key, _ in pairs}
    assert set(at) == {b'{"id":1}', b'{"id":2}'}
    assert results[ACCOUNTS, at[b'{"id":1}']][0] == (b'{"id":1}', first)
    assert results[TRANSFERS, at[b'{"id":1}']] == [(b'{"id":1}', delete), (b'{"id":1}', None)]
    own = [pair for partition in (0, 1) for pair in results["bank", partition]]
    assert own.count((None, schema)) == 2
    assert sorted(own, key=str) == sorted([(None, schema), (None, schema), (b"t", begin), (b"m", message)], key=str)


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_the_mark_of_a_copy_goes_where_schema_records_go(tables, engine):
    """L34: readers of a table's topic find only rows and truncates there, and each partition of the stream's own has the mark."""
    if engine == "postgresql":
        table = postgres.Table(source="jakarta/bank", database="bank", schema="public", table="accounts")
        source = table.source(postgres.Transaction(epoch=EPOCH, commit=9, commit_ms=1, xid=7), 0)
    else:
        table = mysql.Table(connector="mariadb", source="london/bank", database="public", table="accounts")
        transaction = mysql.Transaction(epoch=EPOCH, commit=9, commit_us=1000, server_id=1, gtid=None, file="binlog.1")
        source = table.source(transaction, 0)
    schema = TableSchema(schema="public", table="accounts", key=["id"], columns=[])
    mark = copy_mark(schema, COPY_BEGINS, source, table.database_names, 5, b'"7:9"', 1)
    row = value(b'"public"', b'"accounts"')
    batch = Batch(
        source="jakarta/bank",
        follows=Position(EPOCH, 8, 0),
        first=Position(EPOCH, 9, 0),
        last=Position(EPOCH, 9, 1),
        segments=[(9, 0, 2)],
        keys=[None, b'{"id":1}'],
        values=[mark, row],
    )

    results = {
        (topic, partition): values for topic, partition, _, values, _ in share_out(batch, 0, "bank", [0, 1], tables)
    }

    assert results.pop(("bank", 0)) == results.pop(("bank", 1)) == [mark]
    assert [(topic, values) for (topic, _), values in results.items()] == [(ACCOUNTS, [row])]
