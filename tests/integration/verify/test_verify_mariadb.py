"""`headrace verify` and silver with a MariaDB source: server, edge, bridge, Kafka and lake are real, and nobody stops for it."""

import json
import math
import random
import struct
import sys
import threading
from contextlib import closing, contextmanager

import pytest

from headrace import command
from headrace.configuration.lake import LakeFile, VerifiedMysql
from headrace.configuration.load import load
from headrace.errors import NeedsOperator, NotConnected
from headrace.verify.mysql.database import MysqlDatabase
from spark_jobs import load as job
from spark_jobs.silver import table_task
from tests.bridge.asked_edges import AskedTopics
from tests.integration.mysql.test_mariadb_values import EDGES, TABLE
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SOURCE, STREAM = "singapore/pay", "pay"
#: What docs/mariadb.md says that silver holds.
SILVER = {
    "id": "int", "t1": "smallint", "t1u": "smallint", "t2": "smallint", "t2u": "int", "t3": "int", "t3u": "int", "t4": "int",
    "t4u": "bigint", "t8": "bigint", "t8u": "decimal(20,0)", "small": "decimal(5,2)", "big": "string",
    "whole": "decimal(20,0)", "part": "decimal(9,9)", "f": "float", "d": "double", "b1": "string", "b10": "string",
    "b64": "string", "y": "smallint", "da": "date", "ti": "string", "ti3": "string", "dt": "timestamp_ntz",
    "dt1": "timestamp_ntz", "dt6": "timestamp_ntz", "ts": "timestamp", "ts2": "timestamp", "ts6": "timestamp",
    "c": "string", "vc": "string", "lvc": "string", "l1": "string", "u2": "string", "k8": "string", "sj": "string",
    "tt": "string", "te": "string", "mt": "string", "lt": "string", "bin": "binary", "vb": "binary", "bl": "binary",
    "lb": "binary", "e": "string", "s": "string", "j": "string", "u": "string", "i6": "string", "i4": "string", "g": "binary",
    "v8": "string", "bc": "binary",
}  # fmt: skip
#: Another value for every column of the first row: the next one where a type has such.
NEXT = r"""
    t1 = t1 + 1, t1u = t1u - 1, t2 = t2 + 1, t2u = t2u - 1, t3 = t3 + 1, t3u = t3u - 1, t4 = t4 + 1, t4u = t4u - 1, t8 = t8 + 1,
    t8u = t8u - 1, small = small + 0.01, big = big + 0.000000000000000000000000000001, whole = whole - 1,
    part = part + 0.000000001, f = -1.5000001, d = 1.0000000000000002e308, b1 = 0, b10 = 1022, b64 = 18446744073709551614,
    y = 2154, da = '9999-12-30', ti = '838:59:58', ti3 = '-838:59:59.998', dt = '9999-12-31 23:59:58',
    dt1 = '1000-01-01 00:00:00.8', dt6 = '2026-01-31 09:15:00.000002', ts = '2038-01-19 03:14:06',
    ts2 = '1970-01-01 00:00:01.98', ts6 = '2026-01-31 09:15:00.123457', c = 'abcdE', vc = concat(vc, ' '),
    lvc = concat(substr(lvc, 2), 'u'), l1 = concat(l1, '~'), u2 = 'uni', k8 = upper(k8), sj = 'テスド', tt = ' ', te = 'Text',
    mt = 'medium ', lt = concat(lt, 'l'), bin = x'0101', vb = x'00fe', bl = x'0000', lb = concat(lb, x'00'), e = 'a', s = 'x',
    j = '{"a": [1,2]}', u = '6ccd780c-baba-1026-9564-5b8c656024dc', i6 = 'fe80::1:1', i4 = '10.0.0.2', g = point(1, -2.25),
    v8 = 'Packed', bc = x'0103'
"""


class Pay:
    """A captured database of wallets, of every type, and its lake."""

    def __init__(self, maria, lake_file, edge):
        self.maria, self.lake_file, self.edge = maria, lake_file, edge

    def moves(self) -> int:
        ((count,),) = self.maria.execute("select count(*) from moves")
        return count

    @contextmanager
    def written_to(self):
        """Let money move between wallets, one transaction after the other."""
        ended = threading.Event()

        def write() -> None:
            chance = random.Random(7)
            with closing(self.maria.connect()) as connection, connection.cursor() as cursor:
                while not ended.wait(0.005):
                    giver, taker = chance.sample(range(1, 901), 2)
                    cursor.execute("begin")
                    cursor.execute("update wallets set cents = cents - 5 where id = %s", [giver])
                    cursor.execute("update wallets set cents = cents + 5 where id = %s", [taker])
                    cursor.execute("insert into moves (giver, taker) values (%s, %s)", [giver, taker])
                    cursor.execute("commit")

        before = self.moves()
        writer = threading.Thread(target=write)
        writer.start()
        try:
            eventually(lambda: self.moves() > before, saying="money moves")
            yield
        finally:
            ended.set()
            writer.join()

    def acknowledged(self) -> bool:
        """Whether all that was committed before is in Kafka."""
        ((file, offset, *_),) = self.maria.execute("show master status")

        def there() -> bool:
            checkpoint = self.edge.checkpoint
            return (checkpoint["file"], checkpoint["offset"]) >= (file, offset)

        return eventually(there, 180, saying=f"{file}:{offset} is acknowledged")

    def load(self, spark):
        self.acknowledged()
        job.run(spark, load(self.lake_file, LakeFile), STREAM).check()

    def path(self, name):
        return table_task.path(load(self.lake_file, LakeFile), STREAM, f"{self.maria.name}.{name}")


@pytest.fixture
def pay(maria, maria_edges, inside, kafka, topic, tmp_path):
    name = topic()
    topics = AskedTopics(topic)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name, more=topics.section)
    edge = maria_edges(maria, f"amqp://127.0.0.1:{bridge.port}", source=SOURCE)
    edge.init()
    maria.execute(TABLE)
    maria.execute("create table wallets (id int primary key, cents bigint not null)")
    maria.execute(
        "create table moves "
        "(id bigint unsigned auto_increment primary key, giver int, taker int, twice int as (giver * 2) stored)"
    )
    maria.execute("create table log (a varchar(9), b int, half int as (b / 2) virtual)")
    maria.execute("insert into log (a, b) values ('x', 1), ('x', 1), (null, 2)")
    maria.execute("insert into wallets (id, cents) select seq, 1000 from seq_1_to_1000")
    maria.execute("set time_zone = '+00:00'")
    for row in EDGES:
        maria.execute(f"insert into every values ({row})")
    with closing(maria.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "insert into every (id, d, f, dt6, ts6, big, t8u) values (%s, %s, %s, %s, %s, %s, %s)", floats()
        )
    path = tmp_path / "lake.toml"
    path.write_text(f"""
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka.bootstrap}"
[streams.{STREAM}]
topic = "{name}"
sources = ["{SOURCE}"]
{topics.section}""")
    with edge.running():
        yield Pay(maria, path, edge)


def floats():
    """Return rows of numbers with any bits, and of those at the ends of what there is."""
    chance = random.Random(20261121)
    doubles = [
        0.0,
        -0.0,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        -1.0,
        0.1,
        2.0**52,
        2.0**1023,
        2.0**-1022,
    ]
    doubles += [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(300)]
    singles = [struct.unpack("<f", chance.randbytes(4))[0] for _ in doubles]
    for number, (double, single) in enumerate(zip(doubles, singles, strict=True), 100):
        moment = (
            f"20{number % 38:02}-0{number % 9 + 1}-1{number % 10} 0{number % 10}:10:20.{chance.randrange(10**6):06}"
        )
        exact = chance.randrange(-(10**60), 10**60)
        yield (
            number, double if math.isfinite(double) else None, single if math.isfinite(single) else None, moment, moment,
            f"{exact}e-30", chance.randrange(1 << 64),
        )  # fmt: skip


@pytest.fixture
def verify(pay, monkeypatch, capsys, spark):
    """Return a function that runs the command in this process, whose Spark session it shares; gives exit code and JSON."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["headrace", "verify", "--config", str(pay.lake_file), "--json", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command.main()
        answer = capsys.readouterr()
        assert answer.out, f"exit code {ended.value.code}: {answer.err}"
        said = json.loads(answer.out)
        return ended.value.code, {each["table"].partition(".")[2]: each for each in said["tables"]}

    return run


@pytest.mark.long
def test_the_lake_is_proved_equal_while_money_moves_and_what_was_altered_is_located(pay, verify, spark):
    with pay.written_to():
        # Given every type and a load, in the types that are promised, and writers that have gone on since.
        pay.load(spark)
        schema = spark.read.format("delta").load(pay.path("every")).schema
        assert {it.name: it.dataType.simpleString() for it in schema if not it.name.startswith("_")} == SILVER
        before = pay.moves()

        # When the source has other values in a row, in a digit, a row more and one less, and its log has none of it.
        pay.maria.execute("set sql_log_bin = 0")
        pay.maria.execute(f"update every set {NEXT} where id = 1")
        pay.maria.execute("update wallets set cents = cents - 1 where id = 917")
        pay.maria.execute("insert into wallets (id, cents) values (1801, 0)")
        pay.maria.execute("delete from wallets where id = 970")
        pay.maria.execute("set sql_log_bin = 1")
        eventually(lambda: pay.moves() > before + 20, saying="more is written")
        code, found = verify()
        after = pay.moves()

        # Then each is found, and all else is equal, at one place of the log.
        assert (code, {name: it["reasons"] for name, it in found.items()}) == (1, {name: [] for name in found})
        assert {name for name, it in found.items() if it["equal"]} == {"moves", "log", "t"}
        # As of 11.8 the server logs updates without generated columns, and no record has them.
        has_generated = pay.maria.server.version < "11.8"
        assert found["moves"]["treated"] == ({} if has_generated else {"twice": "exclude"})
        (every,) = found["every"]["differences"]
        assert (every["what"], every["key"]) == ("differs", {"id": "1"})
        assert sorted(every["columns"]) == sorted(set(SILVER) - {"id"})
        assert found["every"]["rows_lake"] == len(EDGES) + 310
        assert before < found["moves"]["rows_source"] < after
        assert len({it["place"] for it in found.values()}) == 1
        altered = [
            ("differs", "917", ["cents"]),
            ("missing in the lake", "1801", []),
            ("only in the lake", "970", []),
        ]
        assert differences(found["wallets"]) == altered

    # When nobody writes any more, a difference counts all the same, whatever others write (M11: 2,000 events of theirs were too
    # many to be looked at): the edge has read its log up to the snapshot, and nothing more came.
    pay.acknowledged()
    other = f"{pay.maria.name}x"
    pay.maria.execute(f"create database {other}")
    pay.maria.execute(f"create table {other}.o (id int)")
    for number in range(700):
        pay.maria.execute(f"insert into {other}.o values ({number})")
    code, found = verify("--table", "wallets", "--sample", "100")
    assert (code, differences(found["wallets"])) == (1, altered)
    pay.maria.execute(f"drop database {other}")


def differences(found):
    return sorted((it["what"], it["key"]["id"], it["columns"]) for it in found["differences"])


@pytest.fixture
def address(maria):
    def of(**changes):
        known = {"host": "127.0.0.1", "port": maria.server.port, "user": "root", "databases": [maria.name]}
        return VerifiedMysql(**known | changes)

    return of


def end_of_log(maria) -> int:
    ((file, offset, *_),) = maria.execute("show master status")
    return int(file.rpartition(".")[2]) << 32 | int(offset)


def test_the_snapshot_has_what_committed_below_its_place_and_nothing_else(maria, address):
    maria.execute("insert into t values (1, 'before')")
    before = end_of_log(maria)
    with MysqlDatabase.connect(SOURCE, address(), placed=True) as source:
        maria.execute("insert into t values (2, 'after')")

        assert source.place.commit == before < end_of_log(maria)
        assert source.query(f"select id from {maria.name}.t", "t") == [(1,)]
        with pytest.raises(NeedsOperator, match="error 1792"):
            source.query(f"insert into {maria.name}.t values (3, 'never')", "t")


def test_the_log_tells_whether_nothing_of_the_compared_databases_came(maria, address):
    # Given a transaction that is in the lake.
    maria.execute("insert into t values (1, 'known')")
    file = maria.execute("show master status")[0][0]
    (*_, ends) = [row[4] for row in maria.execute(f"show binlog events in '{file}'") if row[2] == "Gtid"]
    known = (end_of_log(maria) >> 32) << 32 | ends

    def idle() -> bool:
        with MysqlDatabase.connect(SOURCE, address(), placed=True) as source:
            return source.idle_since(known)

    assert idle()
    # What others write, and a new binlog file, are nothing.
    maria.execute(f"create database {maria.name}x")
    maria.execute(f"create table {maria.name}x.o (id int)")
    maria.execute(f"insert into {maria.name}x.o values (1)")
    maria.execute("flush binary logs")
    assert idle()
    new = maria.execute("show master status")[0][0]

    def settled() -> bool:
        events = maria.execute(f"show binlog events in '{new}'")
        return any(kind == "Binlog_checkpoint" and reported == new for _, _, kind, _, _, reported in events)

    # The server notes by itself that it needs the former file no more: not while another test looks where the log ends.
    eventually(settled, saying="the server has let go of the former file")
    maria.execute(f"drop database {maria.name}x")
    # A change is something.
    maria.execute("delete from t")
    assert not idle()


def test_a_server_that_cannot_be_asked_says_who_must_act(maria, address):
    with pytest.raises(NotConnected, match=f"{SOURCE}: 127.0.0.1:1 cannot be reached"):
        MysqlDatabase.connect(SOURCE, address(port=1)).__enter__()
    with pytest.raises(NeedsOperator, match="refuses user 'nobody'"):
        MysqlDatabase.connect(SOURCE, address(user="nobody")).__enter__()


def test_tables_are_those_that_are_captured_with_what_is_in_the_log(maria, address):
    maria.execute("create table k (b int, a int unsigned, c int as (a + 1) virtual, d bit(9), primary key (a, b))")
    maria.execute("create table m (id int, n int not null, unique (id), unique (n)) engine=MyISAM")
    maria.execute(
        "create table s (id int primary key, a timestamp(6) generated always as row start, b timestamp(6) generated always as "
        "row end, period for system_time (a, b)) with system versioning"
    )
    maria.execute("create view v as select * from k")
    maria.execute("insert into t select seq, null from seq_1_to_500")
    maria.execute("analyze table t")

    with MysqlDatabase.connect(SOURCE, address()) as source:
        tables = {table.name: table for table in source.tables()}
        about = source.side(tables["t"], [], []).about()

    assert set(tables) == {"k", "m", "s", "t"}
    assert 400 < about < 600
    assert (tables["k"].key, tables["m"].key, tables["s"].key) == (("a", "b"), ("n",), ("id",))
    assert list(tables["s"].columns) == ["id"]
    assert {name: kind.name for name, kind in tables["k"].columns.items()} == {
        "b": "int",
        "a": "int unsigned",
        "d": "bit",
    }
    assert tables["k"].columns["d"].bits == 9
    assert (tables["k"].unsteady, tables["m"].unsteady) == ("", "is a table of MyISAM, which knows no snapshots")


def test_writers_are_held_for_a_moment_only_where_the_server_does_not_say_where_a_snapshot_stands(
    maria, address, monkeypatch
):
    # Given a server of which no more is known than of MySQL.
    monkeypatch.setattr("headrace.verify.mysql.database._REPORTED", "nothing")
    monkeypatch.setattr("headrace.verify.mysql.database._NEW_WORD", (99, 0))
    maria.execute("insert into t values (1, 'before')")
    before = end_of_log(maria)

    with MysqlDatabase.connect(SOURCE, address(), placed=True) as source:
        maria.execute("insert into t values (2, 'after')")

        assert source.place.commit == before
        assert source.query(f"select id from {maria.name}.t", "t") == [(1,)]
