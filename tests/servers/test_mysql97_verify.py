"""`headrace verify`'s source half at a real MySQL 9.7, as a user of a managed server: no SUPER, no RELOAD, no lock."""

import threading
from contextlib import closing, contextmanager

import pytest

from headrace.configuration.edge import Mysql
from headrace.configuration.secret import Secret
from headrace.errors import Retryable
from headrace.verify.mysql import database as module
from headrace.verify.mysql.database import MysqlDatabase
from spark_jobs.verify.verify import verify
from tests.lake.verify_sides import Frames, rows
from tests.rules.waiting import eventually

SOURCE = "singapore/pay"


@pytest.fixture
def address(mysql97, tmp_path):
    """Return what makes the address of a user with the privileges that managed servers grant."""
    user = f"u_{mysql97.name}"
    mysql97.execute(f"create user {user} identified by 'secret'")
    mysql97.execute(f"grant select, replication slave, replication client on *.* to {user}")

    (tmp_path / "secret").write_text("secret")
    known = {"host": "127.0.0.1", "port": mysql97.server.port, "user": user, "server_id": 77, "sslmode": "require"}
    known |= {"password": Secret("file:secret", tmp_path), "databases": [mysql97.name]}

    def of(**changes):
        return Mysql(**known | changes)

    yield of
    mysql97.execute(f"drop user {user}")


@contextmanager
def written_to(database, *, seconds=0.002):
    """Let two connections commit rows of `t`, one in each transaction."""
    ended, written = threading.Event(), [0, 0]

    def write(number: int) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not ended.wait(seconds):
                cursor.execute("insert into t values (%s, 'x')", [number + 2 * written[number]])
                written[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    try:
        eventually(lambda: all(written), saying="both connections write")
        yield
    finally:
        ended.set()
        for writer in writers:
            writer.join()


def test_a_snapshot_without_a_lock_sees_what_is_ahead_of_its_place_and_nothing_else(mysql97, address):
    with written_to(mysql97):
        for _ in range(5):
            with MysqlDatabase.connect(SOURCE, address(), placed=True) as source:
                ((seen,),) = source.query(f"select count(*) from {mysql97.name}.t", "t")
                file, _, offset = source.place.text.rpartition(":")
            events = mysql97.execute(f"show binlog events in '{file}'")
            tables = [at for _, at, kind, _, _, info in events if kind == "Table_map" and f"({mysql97.name}.t)" in info]
            assert seen == len([at for at in tables if at < int(offset)]) > 0


def test_a_server_that_never_rests_is_not_locked_by_a_user_who_may_not(mysql97, address, monkeypatch):
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.0)
    with pytest.raises(Retryable, match="may not lock it"):
        MysqlDatabase.connect(SOURCE, address(), placed=True).__enter__()


TABLE = """
create table forms (
    id int primary key, n bigint unsigned, d decimal(10,3), f double, y year, dt datetime(6), ts timestamp(3) null, da date,
    v varchar(40), x longtext, j json, b varbinary(9), lb longblob, e enum('a','b'), bi bit(9)
)"""
VALUES = (
    (
        "(1, 18446744073709551615, 1.5, 0.1, 2026, '2026-01-31 09:15:00.000001', '2026-01-31 09:15:00.123', '0099-12-31', "
        "'köln', '長い', '{\"a\": [1, 2]}', x'00ff', x'010203', 'b', b'101')"
    ),
    "(2, null, -2.125, -3e-300, null, null, null, null, '', '', null, null, '', null, null)",
)
SILVER = "id, n, d, f, y, dt, ts, da, v, x, j, b, lb, e, bi"
IN_LAKE = (
    (
        "(1, cast(18446744073709551615 as decimal(20,0)), cast(1.5 as decimal(10,3)), 0.1D, cast(2026 as smallint), "
        "timestamp_ntz'2026-01-31 09:15:00.000001', timestamp'2026-01-31 09:15:00.123', date'0099-12-31', 'köln', '長い', "
        "'{\"a\": [1, 2]}', X'00ff', X'010203', 'b', '000000101')"
    ),
    "(2, null, cast(-2.125 as decimal(10,3)), -3e-300D, null, null, null, null, '', '', null, null, X'', null, null)",
)


def test_every_form_of_a_value_is_compared_without_functions_that_the_server_no_longer_has(mysql97, address, spark):
    """N2, N3, N4: EXPLAIN is a tree, MD5() is gone, and an index over an expression has no column's name."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    mysql97.execute(TABLE)
    mysql97.execute(f"insert into forms values {', '.join(VALUES)}")
    mysql97.execute("create table odd (a int, unique ((a + 1)))")
    mysql97.execute("insert into odd values (1), (2)")
    mysql97.execute("insert into t values (1, 'not captured')")
    mysql97.execute("analyze table odd")
    known = {
        f"{mysql97.name}__forms": rows(spark, SILVER, *IN_LAKE),
        f"{mysql97.name}__odd": rows(spark, "a", "(1)", "(3)"),
    }
    names = [f"{mysql97.name}.{table}" for table in ("forms", "odd")]

    with MysqlDatabase.connect(SOURCE, address(tables=names), placed=True) as source:
        reports = {report.table.partition(".")[2]: report for report in verify(SOURCE, source, Frames(**known), names)}
        captured = {table.name: table.captured for table in source.tables()}

    assert (reports["forms"].verdict, reports["forms"].reasons) == ("equal", [])
    assert reports["odd"].verdict == "not equal"
    # A table without a key: a row is its own key.
    assert sorted(each.what for each in reports["odd"].differences) == ["missing in the lake", "only in the lake"]
    # M12: tables that the edge's file does not name.
    assert captured == {"forms": True, "odd": True, "t": False}
