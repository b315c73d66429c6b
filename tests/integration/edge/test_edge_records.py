"""Records beside changes, and rows that are not like others: messages, tombstones, transactions, large rows, partitions."""

import base64
import hashlib

import pytest

from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import as_letters, copy, records, replay
from tests.rules.waiting import eventually


@pytest.fixture
def asked(edges, database, interconnect):
    """Return what makes an edge with settings of [records], of a database that has a table `t`."""

    def make(settings="", tables="create table t (id int primary key, note text)"):
        database.execute(tables)
        made = edges(database, interconnect.url, more=f"[records]\n{settings}")
        made.init()
        return made

    return make


def kinds(interconnect):
    """What each record is, in order."""
    return [
        "tombstone" if value is None else value.get("op") or value.get("status") or "schema"
        for _, _, value in list(interconnect.records)
    ]


def emit(database, content, prefix="outbox", *, transactional=True):
    database.execute("select pg_logical_emit_message(%s, %s, %s)", [transactional, prefix, content])


def test_messages_of_the_wanted_prefix_arrive_within_and_outside_of_transactions(asked, database, interconnect):
    edge = asked('messages = ["outbox"]')
    with edge.running():
        database.execute("begin; insert into t values (1)")
        emit(database, "paid")
        emit(database, "noise", "other")
        database.execute("insert into t values (2); commit")
        emit(database, "at once", transactional=False)
        emit(database, "noise", "other", transactional=False)
        emit(database, "alone")
        arrive(interconnect, 5)
        eventually(lambda: edge.checkpoint["acknowledged"] == str(interconnect.records[-1][0]))

    assert [change["op"] for change in interconnect.changes] == ["c", "m", "c", "m", "m"]
    messages = [change["message"] for change in interconnect.changes if change["op"] == "m"]
    assert [message["prefix"] for message in messages] == ["outbox"] * 3
    assert [base64.b64decode(message["content"]) for message in messages] == [b"paid", b"at once", b"alone"]
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))


def test_messages_outside_of_transactions_are_not_sent_again_once_confirmed(asked, database, interconnect):
    edge = asked('messages = ["*"]')
    with edge.running():
        emit(database, "one", transactional=False)
        arrive(interconnect, 1)
        said = interconnect.changes[0]["source"]["lsn"]
        eventually(lambda: edge.confirmed() >= said)
    arrived = len(interconnect.arrived)
    with edge.running():
        emit(database, "two", transactional=False)
        arrive(interconnect, 2)

    assert [base64.b64decode(change["message"]["content"]) for change in interconnect.changes] == [b"one", b"two"]
    again = [batch for batch, _ in interconnect.arrived[arrived:] if len(batch)]
    assert [len(batch) for batch in again] == [1]


def test_tombstones_and_transaction_records_arrive_when_asked_for(asked, database, interconnect):
    edge = asked("tombstones = true\ntransactions = true")
    with edge.running():
        database.execute("begin; insert into t values (1); delete from t; commit")
        database.execute("insert into t values (2)")
        arrive(interconnect, 3)
        eventually(lambda: kinds(interconnect)[-1] == "END")

    assert kinds(interconnect) == ["BEGIN", "schema", "c", "d", "tombstone", "END", "BEGIN", "c", "END"]
    ends = [value for _, _, value in interconnect.records if value and value.get("status") == "END"]
    assert [end["event_count"] for end in ends] == [2, 1]
    assert ends[0]["data_collections"] == [{"data_collection": "public.t", "event_count": 2}]


def test_row_beyond_the_limit_stops_the_edge_with_its_place(asked, database, interconnect):
    edge = asked('largest_megabytes = 1\non_too_large = "stop"')
    with edge.running() as running:
        database.execute("insert into t values (1, repeat('x', 1100000))")
        error = running.ended()

    assert isinstance(error, NeedsOperator)
    assert "public.t" in error.message
    assert "largest_megabytes" in error.message


def test_row_beyond_the_limit_becomes_a_dead_letter_and_the_rest_goes_on(asked, database, interconnect):
    edge = asked("largest_megabytes = 1")
    with edge.running() as running:
        database.execute("insert into t values (1, 'x')")
        database.execute("update t set note = repeat('x', 1100000)")
        database.execute("insert into t values (2, 'x')")
        arrive(interconnect, 3)
        assert running.figures.dead_letters == 1

    _, letter, after = interconnect.changes
    row = b'{"id":1,"note":"' + b"x" * 1_100_000 + b'"}'
    assert (letter["op"], letter["after"], letter["unchanged"]) == ("u", {"id": 1}, ["note"])
    assert letter["too_large"]["sha256"] == hashlib.sha256(row).hexdigest()
    assert after["after"] == {"id": 2, "note": "x"}


def test_a_value_without_a_form_becomes_a_dead_letter_and_the_rest_goes_on(asked, database, interconnect):
    """M2's siblings: it stopped the source. A copy of the row is one as well, until the row is put right."""
    edge = asked('time = "nanoseconds"', tables="create table d (id int primary key, at timestamp)")
    with edge.running() as running:
        database.execute("insert into d values (1, '3026-01-01'), (2, null)")
        arrive(interconnect, 2)
        copy(edge, "public.d")
        arrive(interconnect, 4)
        database.execute("update d set at = '2026-01-01' where id = 1")
        arrive(interconnect, 5)
        (words,) = [words for words in running.figures.warnings if "needs a copy" in words]

    assert [(it["op"], it["after"], it.get("too_large", {}).get("column")) for it in interconnect.changes] == [
        ("c", {"id": 1}, "at"), ("c", {"id": 2, "at": None}, None), ("r", {"id": 1}, "at"), ("r", {"id": 2, "at": None}, None),
        ("u", {"id": 1, "at": 1767225600000000000}, None),
    ]  # fmt: skip
    assert "values of column at cannot be decoded" in words


def test_rows_come_again_by_keys_of_every_kind(asked, database, interconnect):
    columns = {
        "i": "bigint", "n": "numeric", "t": "text", "b": "bytea", "ts": "timestamp", "tz": "timestamptz", "d": "date",
        "u": "uuid", "f": "real", "q": "boolean", "c": "char(3)", "own": "code", "bits": "bit(3)", "pair": "int4range",
    }  # fmt: skip
    edge = asked(
        tables="create domain code as bytea;"
        f"create table k ({', '.join(f'{name} {kind}' for name, kind in columns.items())}, primary key ({', '.join(columns)}))"
    )
    with edge.running():
        for number in range(3):
            database.execute(
                "insert into k values (%s, 'NaN', E'it''s\\\\ ü', '\\x00ff', '2026-01-31 09:15:00.25', 'infinity',"
                " '0044-03-15 BC', gen_random_uuid(), 0.1, true, 'a', '\\x01', B'101', '[1,5)')",
                [number],
            )
        arrive(interconnect, 3)
        replay(edge, as_letters(interconnect, "k")[1:])
        arrive(interconnect, 5)
        # And a key in a form of Debezium's does not identify a row.
        edge.path.write_text(edge.path.read_text().replace("[records]", '[records]\ntime = "adaptive"'))
        with pytest.raises(NeedsOperator, match="Debezium's forms"):
            replay(edge, as_letters(interconnect, "k"))

    assert [value["after"] for _, value in records(interconnect, "k", "r")] == [
        value["after"] for _, value in records(interconnect, "k", "c")[1:]
    ]


def test_debeziums_forms_arrive_as_asked_for(asked, database, interconnect):
    edge = asked(
        'decimal = "precise"\ntime = "adaptive"',
        "create table f (id int primary key, n numeric(9,2), v numeric, d date, t time, m timestamp(3), u timestamp)",
    )
    with edge.running():
        database.execute(
            "insert into f values (1, 12.5, 1.50, '1970-01-03', '00:00:01', '1970-01-01 00:00:02', '1969-12-31 23:59:59')"
        )
        arrive(interconnect, 1)

    assert interconnect.changes[0]["after"] == {
        "id": 1,
        "n": "BOI=",
        "v": {"scale": 1, "value": "Dw=="},
        "d": 2,
        "t": 1_000_000,
        "m": 2000,
        "u": -1_000_000,
    }


# B8: an update that leaves a large value alone must not overwrite it, whatever the replica identity is.
@pytest.mark.parametrize(
    ("identity", "before"),
    [
        ("default", None),
        ("full", {"id": 1, "code": 5, "n": 1, "body": "x" * 10_000}),
        ("using index big_code", None),
    ],
)
def test_unchanged_large_value_with_every_replica_identity(asked, database, interconnect, identity, before):
    edge = asked(
        tables="create table big (id int primary key, code int not null, n int, body text);"
        "create unique index big_code on big (code); alter table big alter body set storage external;"
        f"alter table big replica identity {identity}"
    )
    with edge.running():
        database.execute("insert into big values (1, 5, 1, repeat('x', 10000))")
        database.execute("update big set n = 2")
        arrive(interconnect, 2)

    updated = interconnect.changes[1]
    assert updated["before"] == before
    assert updated["after"] == {"id": 1, "code": 5, "n": 2} | ({"body": "x" * 10_000} if identity == "full" else {})
    assert updated.get("unchanged") == (None if identity == "full" else ["body"])
    keys = [key for _, key, value in interconnect.records if "op" in value]
    assert keys == [{"code": 5} if "index" in identity else {"id": 1}] * 2


def test_truncate_of_several_tables_with_those_that_refer_to_them(asked, database, interconnect):
    edge = asked(
        tables="create table a (id serial primary key); create table b (id int primary key);"
        "create table c (id int primary key, a int references a)"
    )
    with edge.running():
        database.execute("begin; insert into a default values; truncate a, b restart identity cascade; commit")
        database.execute("insert into a default values")
        arrive(interconnect, 5)

    reported = [(change["op"], change["source"]["table"]) for change in interconnect.changes]
    assert reported[0] == ("c", "a")
    assert sorted(reported[1:4]) == [("t", "a"), ("t", "b"), ("t", "c")]
    assert interconnect.changes[4]["after"] == {"id": 1}
    assert [change["transaction"]["total_order"] for change in interconnect.changes[:4]] == [1, 2, 3, 4]


def test_partitions_arrive_under_their_root_where_the_publication_says_so(edges, database, interconnect):
    database.execute(
        "create table p (id int primary key, note text) partition by range (id);"
        "create table p1 partition of p for values from (0) to (10);"
        # The columns of a partition may stand in another order.
        "create table p2 (note text, id int primary key);"
        "alter table p attach partition p2 for values from (10) to (20)"
    )
    edge = edges(database, interconnect.url)
    database.execute(f"create publication {database.name} for table p with (publish_via_partition_root = true)")
    edge.init()
    with edge.running():
        database.execute("insert into p values (1, 'a'), (11, 'b')")
        database.execute("update p set id = 12, note = 'c' where id = 1")
        arrive(interconnect, 4)

    assert {change["source"]["table"] for change in interconnect.changes} == {"p"}
    assert [(change["op"], change["after"]) for change in interconnect.changes] == [
        ("c", {"id": 1, "note": "a"}),
        ("c", {"id": 11, "note": "b"}),
        # A row that moves to another partition goes from the one and comes into the other.
        ("d", None),
        ("c", {"id": 12, "note": "c"}),
    ]
    assert kinds(interconnect).count("schema") == 1


def test_generated_columns_arrive_where_the_publication_says_so(edges, database, interconnect):
    database.execute(
        "create table g (id int primary key, twice int generated always as (id * 2) stored);"
        f"create publication {database.name} for table g with (publish_generated_columns = stored)"
    )
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running():
        database.execute("insert into g values (4)")
        arrive(interconnect, 1)

    assert interconnect.changes[0]["after"] == {"id": 4, "twice": 8}


def test_table_without_a_key_tells_whole_old_rows_with_full_identity(asked, database, interconnect):
    edge = asked(tables="create table k (a int, b text); alter table k replica identity full")
    with edge.running():
        database.execute("insert into k values (1, 'x'), (1, 'x')")
        database.execute("update k set b = 'y'")
        database.execute("delete from k where ctid = (select max(ctid) from k)")
        arrive(interconnect, 5)

    assert [key for _, key, _ in interconnect.records] == [None] * 6
    assert [change["before"] for change in interconnect.changes] == [
        *(None, None, {"a": 1, "b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "y"}),
    ]


# B5 and B7: a large transaction that the server writes out in parts, with subtransactions that are rolled back.
def test_large_transaction_with_savepoints_arrives_whole_or_not_at_all(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    database.execute(f"alter database {database.name} set logical_decoding_work_mem = '64kB'")
    edge = edges(database, interconnect.url)
    edge.init()
    row = "insert into t select n, repeat('x', 100) from generate_series(%s, %s) n"
    with edge.running():
        database.execute("begin")
        for part in range(6):
            database.execute("savepoint one")
            database.execute(row, [part * 1000, part * 1000 + 999])
            database.execute("rollback to one" if part % 3 == 1 else "release one")
        # Nothing is sent, and nothing confirmed, of a transaction that is not committed.
        end = database.execute("select (pg_current_wal_insert_lsn() - '0/0')::int8")[0][0]
        with_other = database.connect()
        with_other.cursor().execute("insert into t values (-1)")
        with_other.close()
        arrive(interconnect, 1)
        eventually(lambda: edge.confirmed() > end)
        assert [change["after"]["id"] for change in interconnect.changes] == [-1]
        database.execute("commit")
        arrive(interconnect, 4001)

    ids = [change["after"]["id"] for change in interconnect.changes[1:]]
    assert ids == [*range(1000), *range(2000, 4000), *range(5000, 6000)]
    orders = [change["transaction"]["total_order"] for change in interconnect.changes[1:]]
    assert orders == list(range(1, 4001))
    assert [change["transaction"].get("last") for change in interconnect.changes[1:]] == [None] * 3999 + [True]


def test_prepared_transaction_arrives_when_it_is_committed(asked, database, interconnect):
    edge = asked()
    with edge.running():
        database.execute("begin; insert into t values (1); prepare transaction 'kept'")
        database.execute("begin; insert into t values (2); prepare transaction 'dropped'")
        database.execute("insert into t values (3)")
        arrive(interconnect, 1)
        database.execute("rollback prepared 'dropped'")
        database.execute("commit prepared 'kept'")
        arrive(interconnect, 2)

    assert [change["after"]["id"] for change in interconnect.changes] == [3, 1]
