"""Connectors that read a binlog: places, what may be read again, the server that fits, the schema history, values."""

import json

import msgspec
import pytest

from edge.debezium.checkpoint import (
    HISTORY,
    check_begun,
    check_history,
    check_log,
    check_settings,
    history_bytes,
    make_history,
    place_of,
    restart_offset,
)
from edge.debezium.child import Server
from edge.debezium.connectors import CONNECTORS
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium.test_stream import Stream

FILE = 3 << 32


def offset(pos, gtids="0-1-1", **more):
    """Return an offset as Debezium writes it."""
    return {"ts_sec": 1, "file": "binlog.000003", "pos": pos, "gtids": gtids, "server_id": 1} | more


def begin(pos, number, **more):
    return wire.record(
        wire.TRANSACTIONS,
        offset(pos, transaction_id=f"0-1-{number}", **more),
        None,
        {"status": "BEGIN", "id": f"0-1-{number}", "event_count": None},
    )


def end(pos, number, count):
    return wire.record(
        wire.TRANSACTIONS, offset(pos, event=3), None, {"status": "END", "id": f"0-1-{number}", "event_count": count}
    )


def change(op, pos, before, after, **more):
    source = {"ts_ms": 1000, "snapshot": "false", "db": "bank", "table": "t", "server_id": 1, "gtid": "0-1-7"}
    source |= {"file": "binlog.000003", "pos": pos + 40, "row": 0} | more
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2000}
    schemas = (-1 if op == "t" else wire.KEY_SCHEMA, wire.VALUE_SCHEMA)
    return wire.record(wire.TABLE, offset(pos, event=2, row=1), {"id": 1}, value, schemas)


def heartbeat(pos, **more):
    return wire.record(wire.HEARTBEATS, offset(pos, **more), {"serverName": "headrace"}, {"ts_ms": 1})


ROW = {"id": 1, "note": ""}


@pytest.fixture
def stream(tmp_path):
    columns = [wire.field("id", "int32", "INT"), wire.field("note", "string", "TEXT")]
    return Stream(tmp_path, columns=columns, reached=FILE | 100, connector="mariadb")


def test_a_transaction_has_the_place_where_it_begins_and_is_read_again_from_there(stream):
    stream.take(
        begin(400, 7), change("c", 400, None, ROW), change("d", 400, ROW, None), end(400, 7, 2), begin(900, 8),
        heartbeat(900, event=2),
    )  # fmt: skip
    assert [each["source"]["position"] for each in stream.changes] == [
        str(Position(1, FILE | 400, 0)),
        str(Position(1, FILE | 400, 1)),
    ]
    # The old row is whole, whatever is empty in it.
    assert stream.changes[1]["before"] == ROW
    assert stream.changes[0]["source"] | {"version": 0, "position": 0, "ts_ms": 0} == {
        "version": 0, "connector": "mariadb", "name": "a/b", "ts_ms": 0, "snapshot": "false", "db": "bank", "schema": "bank",
        "table": "t", "server_id": 1, "gtid": "0-1-7", "file": "binlog.000003", "pos": 400, "row": 0, "position": 0,
    }  # fmt: skip
    begins = {place: json.loads(stream.marks.offset_at(FILE | place)[1])["pos"] for place in (401, 900)}
    assert begins == {401: 400, 900: 900}
    assert "transaction_id" not in stream.marks.offset_at(FILE | 900)[1]
    assert stream.stream.reached == FILE | 900


def test_what_is_read_again_is_not_sent_again_and_what_is_new_is(tmp_path, stream):
    columns = [wire.field("id", "int32", "INT"), wire.field("note", "string", "TEXT")]
    again = Stream(tmp_path, columns=columns, reached=FILE | 401, connector="mysql")
    # A server may begin with older ones.
    again.take(begin(200, 5), change("c", 200, None, ROW), end(200, 5, 1), begin(400, 7), change("c", 400, None, ROW))
    again.take(end(400, 7, 1), begin(900, 8), change("c", 900, None, ROW), end(900, 8, 1))
    assert [each["source"]["position"] for each in again.changes] == [str(Position(1, FILE | 900, 0))]
    # A connection that is made again within a process begins with the transaction that was cut, which its offset has as read.
    cut = (begin(400, 7), change("c", 400, None, ROW))
    stream.take(*cut, begin(400, 7, gtids="0-1-7"), change("c", 400, None, ROW), end(400, 7, 1))
    assert len(stream.changes) == 1
    assert json.loads(stream.marks.offset_at(FILE | 401)[1]) == offset(400)


def test_a_truncate_is_a_transaction_without_an_end_and_an_alteration_has_nothing(stream):
    stream.take(
        begin(400, 7), change("t", 400, None, None, row=3), heartbeat(450), begin(500, 8), begin(600, 9),
        change("c", 600, None, ROW), end(600, 9, 1), change("t", 800, None, None), heartbeat(900, event=1),
    )  # fmt: skip
    assert [(each["op"], each["source"]["position"][9:25]) for each in stream.changes] == [
        ("t", f"{FILE | 400:016x}"),
        ("c", f"{FILE | 600:016x}"),
        # MySQL's has no beginning, and the place where it ends.
        ("t", f"{FILE | 799:016x}"),
    ]
    # Debezium has the number of the row that it read last.
    assert {each["source"]["row"] for each in stream.changes} == {0}
    assert json.loads(stream.marks.offset_at(FILE | 450)[1])["pos"] == 400
    # Between two transactions nothing has to be passed over.
    assert json.loads(stream.marks.offset_at(FILE | 900)[1]) == offset(900)


@pytest.mark.parametrize(
    ("connector", "gtid", "before", "own"),
    [
        ("mariadb", "0-1-7", "0-1-6", "0-1-7"),
        ("mariadb", "0-1-7", "0-1-6,1-2-9", "1-2-9,0-1-7"),
        ("mysql", "c1ee7c1e-0000-11ee-b962-0242ac120002:7", "c1ee7c1e-0000-11ee-b962-0242ac120002:1-6", None),
    ],
)
def test_a_transaction_whose_offset_has_it_as_read_is_no_place_to_begin_at(tmp_path, connector, gtid, before, own):
    own = own or before.replace("1-6", "1-7")
    columns = [wire.field("id", "int32", "INT"), wire.field("note", "string", "TEXT")]
    for gtids, reached in ((before, 400), (own, 100)):
        stream = Stream(tmp_path, columns=columns, reached=FILE | 100, connector=connector)
        status = {"status": "BEGIN", "id": gtid, "event_count": None}
        stream.take(wire.record(wire.TRANSACTIONS, offset(400, gtids), None, status), change("c", 400, None, ROW))
        assert stream.stream.reached == FILE | reached
        assert (stream.marks.offset_at(FILE | 400) is None) is (reached == 100)
        # Once it is acknowledged it may be passed over.
        status |= {"status": "END", "event_count": 1}
        stream.take(wire.record(wire.TRANSACTIONS, offset(400, gtids, event=3), None, status))
        assert json.loads(stream.marks.offset_at(FILE | 401)[1])["gtids"] == gtids


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        ([begin(400, 7), change("c", 400, None, ROW), begin(500, 8)], CorruptInput),
        ([begin(400, 7), change("c", 400, None, ROW), end(400, 7, 2)], CorruptInput),
        ([change("c", 400, None, ROW)], NeedsOperator),
        ([change("r", 400, None, ROW)], NeedsOperator),
        ([heartbeat(400, snapshot="INITIAL")], CorruptInput),
        ([begin("x", 7)], CorruptInput),
        ([begin(4000, 7), end(4000, 7, 0), begin(400, 8)], CorruptInput),
    ],
)
def test_what_the_engine_would_not_send_is_an_error(stream, contents, error):
    with pytest.raises(error):
        stream.take(*contents)
    assert stream.changes == []


def test_an_offset_is_read_again_without_what_was_within_a_transaction():
    within = json.dumps(offset(7, event=3, row=2, transaction_id="0-1-2")).encode()
    assert json.loads(restart_offset("mysql", within)) == offset(7)
    assert restart_offset("mysql", json.dumps(offset(7, snapshot="INITIAL")).encode()) is None
    assert restart_offset("postgres", b'{"lsn": 5}') == '{"lsn": 5}'
    for broken in ("{}", '{"file":"x","pos":1}', '{"file":"b.1","pos":"x"}', '{"file":1,"pos":1}', '{"lsn":5}', "[]"):
        with pytest.raises(CorruptInput, match="names no place"):
            place_of("mariadb", broken)


MYSQL = "c1ee7c1e-0000-11ee-b962-0242ac120002"


def listed(number):
    return ("Gtid", f"SET @@SESSION.GTID_NEXT= '{MYSQL}:{number}'")


@pytest.mark.parametrize(
    ("known", "at_offset", "holds"),
    [
        ("0-1-5", [("Gtid_list", "0-1-5")], True),
        ("0-1-5,1-2-9", [("Gtid_list", "1-2-9,0-1-5")], True),
        # Where the first file begins, whose offset Debezium gives for all that is in it.
        ("0-1-5", [("Gtid_list", "")], True),
        ("0-1-5", [("Gtid_list", "0-1-6")], False),
        ("0-1-5", [("Gtid_list", "0-2-5")], False),
        ("0-1-5", None, False),
        (f"{MYSQL}:1-5", [("Query", "BEGIN"), ("Xid", "COMMIT"), listed(7)], True),
        (f"{MYSQL}:1-5", [listed(6)], True),
        (f"{MYSQL}:1-5", [("Query", "BEGIN"), listed(3)], False),
        (f"{MYSQL}:1-5", [], True),
        (None, [listed(1)], True),
        (f"{MYSQL}:1-5", None, False),
    ],
)
def test_a_log_that_was_reset_is_told_from_the_former_one(known, at_offset, holds):
    server = Server("server_id 1", 1, at_offset=at_offset)
    given = json.dumps({"file": "b.1", "pos": 4} | ({"gtids": known} if known else {}))
    if holds:
        check_log(server, given)
        return
    with pytest.raises(NeedsOperator, match="no longer has the log") as error:
        check_log(server, given)
    assert "headrace edge init" in error.value.hint


def test_a_server_whose_log_lacks_something_is_refused_with_what_sets_it():
    fits = {"binlog_format": "row", "binlog_row_image": "FULL", "binlog_row_value_options": "", "gtid_mode": "ON"}
    check_settings(Server("x", 1, settings=fits))
    # A MariaDB has no such settings.
    check_settings(Server("x", 1, settings={"binlog_format": "ROW", "binlog_row_image": "FULL"}))
    for name, value in (
        ("gtid_mode", "OFF"),
        ("binlog_row_image", "MINIMAL"),
        ("binlog_row_value_options", "PARTIAL_JSON"),
    ):
        with pytest.raises(NeedsOperator, match=f"{name} is '{value}'") as error:
            check_settings(Server("x", 1, settings=fits | {name: value}))
        assert f"set global {name}" in error.value.hint


def test_a_history_is_at_least_as_long_as_the_checkpoint_knows_it(tmp_path):
    with pytest.raises(NeedsOperator, match="lost or cut short"):
        check_history(tmp_path, 0)
    make_history(tmp_path)
    assert (tmp_path / HISTORY).stat().st_mode & 0o777 == 0o600
    with pytest.raises(NeedsOperator, match="lost or cut short"):
        check_history(tmp_path, 0)
    (tmp_path / HISTORY).write_bytes(b"1234\n")
    assert history_bytes(tmp_path) == 5
    check_history(tmp_path, 5)
    with pytest.raises(NeedsOperator, match="lost or cut short"):
        check_history(tmp_path, 6)


def test_a_line_of_the_history_that_is_being_written_is_not_counted(tmp_path):
    line = b"x" * 70_000 + b"\n"
    for whole, cut in ((b"", b"{"), (line, b""), (line * 2, b'{"ddl"'), (line, line[:-1] * 3)):
        (tmp_path / HISTORY).write_bytes(whole + cut)
        assert history_bytes(tmp_path) == len(whole)


@pytest.mark.parametrize("name", ["gtid_executed", "gtid_binlog_pos"])
def test_a_server_without_any_gtid_is_refused_before_the_source_is_made(name):
    check_begun(Server("x", 1, settings={name: "0-1-1"}))
    with pytest.raises(NeedsOperator, match="no transaction with a GTID yet") as error:
        check_begun(Server("x", 1, settings={name: ""}))
    assert "Commit a change" in error.value.hint


def time_field(name, kind, length=None):
    more = {} if length is None else {"length": length}
    return wire.field("c", "int64", kind, **more) | {"name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("field", "value", "wanted", "column"),
    [
        (wire.field("c", "int64", "BIGINT UNSIGNED"), -1, 18446744073709551615, ("BIGINT UNSIGNED", None, None)),
        (wire.field("c", "int64", "INT UNSIGNED ZEROFILL", length=5), 42, 42, ("INT UNSIGNED", None, None)),
        (wire.field("c", "boolean", "BOOLEAN"), True, 1, ("TINYINT", None, None)),
        (wire.field("c", "int32", "INTEGER"), 7, 7, ("INT", None, None)),
        (wire.field("c", "string", "DECIMAL UNSIGNED", length=10, scale=3), "1.500", "1.500", ("DECIMAL", 10, 3)),
        (wire.field("c", "string", "NUMERIC"), "1", "1", ("DECIMAL", 10, 0)),
        (wire.field("c", "double", "FLOAT", length=7, scale=3), 1234.5670166015625, 1234.567, ("FLOAT", None, None)),
        (wire.field("c", "float", "FLOAT"), 3.4028e38, 3.4028e38, ("FLOAT", None, None)),
        (wire.field("c", "double", "DOUBLE PRECISION"), 5.0, 5, ("DOUBLE", None, None)),
        (wire.field("c", "boolean", "BIT", length=1), True, "1", ("BIT", 1, None)),
        (
            wire.field("c", "bytes", "BIT", length=10) | {"name": "io.debezium.data.Bits"},
            "AQI=",
            "1000000001",
            ("BIT", 10, None),
        ),
        (time_field("Date", "DATE"), -354285, "1000-01-01", ("DATE", None, None)),
        (time_field("Date", "DATE"), 2932896, "9999-12-31", ("DATE", None, None)),
        (time_field("Date", "DATE"), -719528, "0000-01-01", ("DATE", None, None)),
        (time_field("Timestamp", "DATETIME"), -62135596801000, "0000-12-31T23:59:59", ("DATETIME", 0, None)),
        (time_field("Timestamp", "DATETIME", 3), -750, "1969-12-31T23:59:59.250", ("DATETIME", 3, None)),
        (time_field("Timestamp", "DATETIME"), 1769850900000, "2026-01-31T09:15:00", ("DATETIME", 0, None)),
        (
            time_field("MicroTimestamp", "DATETIME", 6),
            253402300799999999,
            "9999-12-31T23:59:59.999999",
            ("DATETIME", 6, None),
        ),
        (
            time_field("ZonedTimestamp", "TIMESTAMP", 3),
            "2026-01-31T09:15:00.5Z",
            "2026-01-31T09:15:00.500Z",
            ("TIMESTAMP", 3, None),
        ),
        (
            time_field("ZonedTimestamp", "TIMESTAMP"),
            "2026-01-31T09:15:00Z",
            "2026-01-31T09:15:00Z",
            ("TIMESTAMP", 0, None),
        ),
        (time_field("MicroTime", "TIME"), -3020399000000, "-838:59:59", ("TIME", 0, None)),
        (time_field("MicroTime", "TIME", 6), -1, "-00:00:00.000001", ("TIME", 6, None)),
        (
            wire.field("c", "struct", "POINT") | {"name": "io.debezium.data.geometry.Point"},
            {"x": 1.0, "y": 2.0, "wkb": "AQE=", "srid": 4326},
            "5hAAAAEB",
            ("GEOMETRY", None, None),
        ),
        (wire.field("c", "string", "NCHAR", length=3), "nc", "nc", ("CHAR", 3, None)),
        (wire.field("c", "string", "ENUM", length=1), "a", "a", ("ENUM", None, None)),
    ],
)
def test_values_and_columns_are_those_of_our_own_edge(field, value, wanted, column):
    made = CONNECTORS["mysql"].column(field, 1, optional=True)
    assert (made.type_name, made.length, made.scale) == column
    assert msgspec.json.decode(msgspec.json.encode(CONNECTORS["mysql"].converter(field, made)(value))) == wanted


def test_a_number_beyond_the_calendar_is_an_error_of_the_engines(tmp_path):
    columns = [wire.field("id", "int32", "INT"), wire.field("on", "int32", "DATE") | {"name": "io.debezium.time.Date"}]
    stream = Stream(tmp_path, columns=columns, reached=FILE | 100, connector="mariadb")
    with pytest.raises(CorruptInput, match=r"a row of headrace\.public\.t is not of its schema"):
        stream.take(begin(400, 7), change("c", 400, None, {"id": 1, "on": 10**9}), end(400, 7, 1))


def test_a_column_is_not_null_as_its_schema_says_and_mariadbs_json_is_text():
    field = wire.field("c", "string", "JSON") | {"optional": False}
    columns = {kind: CONNECTORS[kind].column(field, 1, optional=True) for kind in ("mysql", "mariadb")}
    assert {kind: (each.type_name, each.optional) for kind, each in columns.items()} == {
        "mysql": ("JSON", False),
        "mariadb": ("LONGTEXT", False),
    }
    assert CONNECTORS["mysql"].column(field | {"optional": True}, 1, optional=True).optional
    assert not CONNECTORS["mysql"].column(field | {"optional": True}, 1, optional=False).optional


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('{"a":[1,"x"],"b":{}}', '{"a": [1, "x"], "b": {}}'),
        (r'{"a,:\"b":"c:d,\\u00e9\/"}', r'{"a,:\"b": "c:d,\\u00e9/"}'),
        ("[1.0E100,-1.5E-20,1.0E7,1.0E-5,1.50,0.1]", "[1e100, -1.5e-20, 10000000.0, 0.00001, 1.50, 0.1]"),
        ("null", "null"),
    ],
)
def test_json_is_as_the_server_prints_it(value, wanted):
    """`verify` compared it with the server's, and it was never equal."""
    field = wire.field("c", "string", "JSON")
    column = CONNECTORS["mysql"].column(field, 1, optional=True)
    assert CONNECTORS["mysql"].converter(field, column)(value) == wanted
