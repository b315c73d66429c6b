"""What is tested at MariaDB 11.4, at MariaDB 11.8: every type, DDL, XA, copies, faults, a failover, doctor and verify."""

import importlib

import pymysql
import pytest

from edge.doctor.examine import examine
from headrace.configuration.lake import VerifiedMysql
from headrace.verify.mysql.database import MysqlDatabase
from spark_jobs.verify.verify import verify
from tests.edge.fix_edge import arrive, ids
from tests.integration.edge.snapshots import copy, schema_records
from tests.integration.mysql.test_mariadb_xa import prepared
from tests.lake.verify_sides import Frames, rows
from tests.rules.waiting import eventually
from tests.servers.borrowed import add_tests
from tests.servers.debian import Mariadb118
from tests.servers.fix_mariadb import SECOND

pytest_plugins = ["tests.bridge.fix_bridge"]

_OF = "tests.integration.mysql.test_mariadb_"
_MODULES = [
    f"{_OF}{name}"
    for name in (
        "bad_input", "debezium_envelope", "debezium_forms", "doctor", "figures", "init", "memory", "pass", "records", "snapshot",
        "statements", "stream", "values", "xa",
    )
] + ["tests.integration.verify.test_verify_mariadb"]  # fmt: skip


@pytest.fixture(scope="session")
def mariadb(mariadb118_server):
    """Return a running server, shared by the session: do not stop it."""
    return mariadb118_server


@pytest.fixture(scope="session")
def _second_mariadb(tmp_path_factory):
    server = Mariadb118(tmp_path_factory.mktemp("mariadb118"), settings=SECOND)
    yield server
    server.delete()


for _module in map(importlib.import_module, _MODULES):
    _class = type("Test" + _module.__name__.rpartition("test_")[2].title().replace("_", ""), (), {})
    add_tests(_class, _module)
    globals()[_class.__name__] = _class
del _class


def test_transactions_whose_rows_became_a_file_of_the_log_survive_the_edge(own_maria, maria_edges, interconnect):
    """As of 11.7 the server makes a large transaction's file its next one; what is left ahead of the rows is part of the GTID."""
    own_maria.execute("set global binlog_large_commit_threshold = 10485760")
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()
    edge.start()
    own_maria.execute("insert into t select seq, repeat('x', 10000) from seq_1_to_2000")
    own_maria.execute("insert into t values (2001, 'after')")
    assert (gtid_size(own_maria, "binlog.000002"), edge.checkpoint["file"]) == (4096 - 339, "binlog.000001")
    eventually(lambda: len(interconnect.changes) > 500, saying="rows arrive")
    edge.kill()
    prepared(own_maria, "large", *((number, "x" * 10000) for number in range(2002, 6000)))
    own_maria.execute("flush binary logs")
    own_maria.execute("insert into t values (6000, 'between')")
    with edge.running():
        eventually(lambda: 6000 in ids(interconnect), saying="what is beyond the prepared rows arrives")
        own_maria.execute("xa commit 'large'")
        arrive(interconnect, 6000)

    assert ids(interconnect) == [*range(1, 2002), 6000, *range(2002, 6000)]
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))


def gtid_size(maria, file) -> int:
    """Return the size of the first GTID event of a file."""
    ((at, end),) = [
        (row[1], row[4]) for row in maria.execute(f"show binlog events in '{file}' limit 4") if row[2] == "Gtid"
    ]
    return end - at


def test_vectors_and_moments_beyond_2038_are_verified(maria, spark):
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    maria.execute("set time_zone = '+00:00'")
    maria.execute("create table new (id int primary key, v vector(2) not null, ts timestamp(2), vector index (v))")
    moment = "'2106-02-07 06:28:15.99'"
    maria.execute(f"insert into new values (1, vec_fromtext('[1,-2]'), {moment}), (2, vec_fromtext('[3,4]'), {moment})")
    name = f"{maria.name}.new"
    lake = [f"({number}, X'0000803F000000C0', timestamp{moment})" for number in (1, 2)]
    frames = Frames(**{f"{maria.name}__new": rows(spark, "id, v, ts", *lake)})
    known = {"host": "127.0.0.1", "port": maria.server.port, "user": "root", "databases": [maria.name]}

    with MysqlDatabase.connect("singapore/pay", VerifiedMysql(**known), placed=True) as source:
        (report,) = verify("singapore/pay", source, frames, [name])

    assert report.reasons == []
    assert [(each.what, each.key, each.columns) for each in report.differences] == [("differs", {"id": "2"}, ("v",))]


def test_alters_that_are_logged_when_they_begin_and_when_they_end_are_followed(maria_edge, maria, interconnect):
    maria.execute("set binlog_alter_two_phase = 1")
    maria.execute("create table p (id int primary key) partition by range (id) (partition a values less than (10))")
    with maria_edge.running() as agent:
        maria.execute("insert into p values (1)")
        maria.execute("alter table t add c int, algorithm = copy")
        maria.execute("insert into t values (1, 'Ana', 2)")
        maria.execute("insert into t values (2, 'Budi', null)")
        with pytest.raises(pymysql.err.DataError):
            maria.execute("alter table t modify c int not null, add unique (c), algorithm = copy")
        maria.execute("alter table p truncate partition a")
        maria.execute("insert into p values (2)")
        maria.execute("insert into t values (3, 'Citra', 4)")
        arrive(interconnect, 5)
        eventually(lambda: any(f"{maria.name}.p needs a copy" in words for words in agent.figures.warnings))

    assert interconnect.changes[1]["after"] == {"id": 1, "note": "Ana", "c": 2}
    assert interconnect.changes[-1]["after"] == {"id": 3, "note": "Citra", "c": 4}
    ((file, *_),) = maria.execute("show master status")
    kinds = [row[5] for row in maria.execute(f"show binlog events in '{file}'") if row[2] == "Gtid"]
    for kind in ("START ALTER", "COMMIT ALTER", "ROLLBACK ALTER"):
        assert any(kind in words for words in kinds)


def test_tables_with_generated_columns_are_followed_without_them(maria_edge, maria, interconnect):
    """This server logs them with inserts, and leaves them out of updates and deletes, whatever binlog_row_image is."""
    columns = "id int primary key, v int as (n * 2) virtual, n int, s varchar(9) as (concat(note, '!')) stored, note varchar(8)"
    maria.execute(f"create table g ({columns}, j int as (n) virtual, key (j))")
    maria.execute(f"create table versions ({columns}) with system versioning")
    maria.execute("create table bag (n int, twice int as (n * 2) stored)")
    maria.execute("create table only_generated (one int as (1) stored)")
    (finding,) = [each for each in examine(maria_edge.config) if each.check == "generated columns"]
    assert finding.level == "warning"
    listed = [f"{maria.name}.{name}" for name in ("bag", "g", "only_generated", "versions")]
    assert finding.text.rpartition(": ")[2] == ", ".join(listed)
    with maria_edge.running() as agent:
        for table in ("g", "versions"):
            maria.execute(f"insert into {table} (id, n, note) values (1, 2, 'a'), (2, null, null), (3, 4, 'c')")
            maria.execute(f"update {table} set n = 9, note = if(id = 1, null, 'b') where id < 3")
            maria.execute(f"delete from {table} where id = 2")
        maria.execute("insert into bag (n) values (1), (2), (2)")
        maria.execute("update bag set n = 3 where n = 2 limit 1")
        maria.execute("delete from bag where n = 1")
        arrive(interconnect, 17)
        copy(maria_edge, f"{maria.name}.g", f"{maria.name}.bag", replace=True)
        arrive(interconnect, 17 + 2 + 4)
        assert [words for words in agent.figures.warnings if "needs a copy" in words] == []
        maria.execute("insert into only_generated values ()")
        maria.execute("delete from only_generated")
        needs = f"{maria.name}.only_generated needs a copy (the log lacks columns of changed rows"
        eventually(lambda: any(needs in words for words in agent.figures.warnings), saying="the table needs a copy")

    def changed(name):
        of_table = [change for change in interconnect.changes if change["source"]["table"] == name]
        return [(change["op"], change["before"], change["after"]) for change in of_table]

    first, second, third = (
        {"id": key, "n": n, "note": note} for key, n, note in ((1, 2, "a"), (2, None, None), (3, 4, "c"))
    )
    last, between = {"id": 1, "n": 9, "note": None}, {"id": 2, "n": 9, "note": "b"}
    followed = [
        *(("c", None, row) for row in (first, second, third)),
        *(("u", first, last), ("u", second, between), ("d", between, None)),
    ]
    assert changed("versions") == followed
    assert changed("g") == [*followed, ("t", None, None), ("r", None, last), ("r", None, third)]
    assert [after or before for _, before, after in changed("bag")][:5] == [{"n": n} for n in (1, 2, 2, 3, 1)]
    assert sorted(after["n"] for op, _, after in changed("bag") if op == "r") == [2, 3]
    schemas = {each["source"]["table"]: each["tableChanges"][0]["table"] for each in schema_records(interconnect)}
    assert schemas["g"]["excluded"] == ["v", "s", "j"]


def test_a_generated_column_that_becomes_an_ordinary_one_is_followed_from_then_on(maria_edge, maria, interconnect):
    """The log describes it as before."""
    maria.execute("create table g (id int primary key, n int, twice int as (n * 2) stored)")
    with maria_edge.running() as agent:
        maria.execute("insert into g (id, n) values (1, 2)")
        maria.execute("update g set n = 3")
        arrive(interconnect, 2)
        maria.execute("alter table g modify twice int")
        maria.execute("insert into g values (2, 3, 7)")
        maria.execute("update g set twice = 8")
        arrive(interconnect, 5)
        maria.execute("alter table g modify twice int as (n * 2) stored")
        maria.execute("update g set n = 4 where id = 1")
        arrive(interconnect, 6)
        needs = [words for words in agent.figures.warnings if "needs a copy" in words]

    assert [change["after"] for change in interconnect.changes] == [
        *({"id": 1, "n": 2}, {"id": 1, "n": 3}, {"id": 2, "n": 3, "twice": 7}, {"id": 1, "n": 3, "twice": 8}),
        *({"id": 2, "n": 3, "twice": 8}, {"id": 1, "n": 4}),
    ]
    # Its rows had a value, which no record has.
    assert len(needs) == 1
