"""SQL Server, Oracle, Db2 and MongoDB, by source blocks and offsets as Debezium's documentation and its code show them."""

import json
from base64 import b64encode

import pytest

from edge.debezium.checkpoint import place_of, restart_offset
from edge.debezium.connectors import source_place, was_read
from edge.debezium.frames import RECORD, Source
from edge.records.cloud_events import CloudEvents
from headrace.batch import decode
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium.test_stream import Stream

SQLSERVER = {"ts_ms": 1559729468470, "snapshot": False, "db": "testDB", "schema": "dbo", "table": "t"}
ORACLE = {"ts_ms": 1520085154000, "snapshot": "false", "db": "ORCLPDB1", "schema": "DEBEZIUM", "table": "t"}
DB2 = {"ts_ms": 1559729471739, "snapshot": "false", "db": "testdb", "schema": "DB2INST1", "table": "t"}
MONGODB = {"ts_ms": 1558965508000, "snapshot": False, "db": "inventory", "rs": "rs0", "collection": "t"}
LSID = '{"id": {"$binary": "FA7YEzXgQXSX9OxmzllH2w==","$type": "04"}}'


#: A token of a change and one of an idle cursor, as Debezium's own tests have them.
CHANGED = "82647A41A6000000012B022C0100296E5A10042409C0859BCF45ABBE0E0BD72AB4040346465F696400461E666F6F002B021E626172002B04000004"
IDLE = "8263515EAC000000022B0429296E1404"


def token(digits):
    """Return a resume token as an offset has it: BSON in base64."""
    text = digits.encode() + b"\0"
    document = b"\x02_data\0" + len(text).to_bytes(4, "little") + text + b"\0"
    return b64encode((len(document) + 4).to_bytes(4, "little") + document).decode()


def change(source, op="c", before=None, after=None, key=None, offset=None):
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1559729471739}
    return wire.record(wire.TABLE, offset or {}, key or {"id": 1}, value, (wire.KEY_SCHEMA, wire.VALUE_SCHEMA))


def sqlserver(commit, change_lsn, serial=1, number=1, ts_ms=1559729468470):
    own = {"commit_lsn": commit, "change_lsn": change_lsn, "event_serial_no": serial}
    offset = own | {"transaction_id": commit, "transaction_data_collection_order_testDB.dbo.t": 1}
    return change(
        SQLSERVER | own | {"ts_ms": ts_ms}, after={"id": number, "note": "n"}, key={"id": number}, offset=offset
    )


def of_lsns(connector, commit, change_lsn, serial):
    """Return a change of SQL Server, or of Db2, whose source block has no serial number."""
    if connector == "sqlserver":
        return sqlserver(commit, change_lsn, serial)
    own = {"commit_lsn": commit, "change_lsn": change_lsn}
    return change(DB2 | own, after={"id": 1, "note": "n"}, offset=own | {"event_serial_no": serial})


def mongodb(sec, order, number, wall_ms):
    """Return an insert of MongoDB 6 or newer, whose source block has the time of a clock."""
    source = MONGODB | {"ts_ms": wall_ms, "wallTime": wall_ms, "ord": order}
    return change(source, after="{}", key={"id": str(number)}, offset={"sec": sec, "ord": order})


def heartbeat(offset):
    return wire.record(wire.HEARTBEATS, offset, {"serverName": "headrace"}, {"ts_ms": 1})


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003"}, 0x27000007580005),
        # Of a server that has been there for long: more than 64 bits.
        ({"commit_lsn": "000443d8:0073d0da:0005", "change_lsn": "000443d8:0073d037:00a8"}, 0x443D80073D0DA0005),
        ({"commit_lsn": "00000000:0000150f:0000000000124a5c"}, 0x150F0000000000124A5C),
        ({"commit_scn": "2122185", "scn": "2122185", "rs_id": "001234.00012345.0124", "ssn": 1}, 2122185),
        ({"ord": 31}, 7 << 32 | 31),
        ({"ord": 31, "lsid": LSID, "txnNumber": 1}, 7 << 32 | 31),
    ],
)
def test_a_change_has_the_place_where_it_was_committed(source, place):
    assert source_place(Source(ts_ms=1558965508000, **source), 7 << 32 | 31) == place


@pytest.mark.parametrize(
    "source", [{}, {"commit_lsn": "NULL"}, {"commit_lsn": "27:758:5"}, {"commit_scn": ""}, {"commit_scn": "x"}]
)
def test_a_source_block_without_a_place_is_an_error(tmp_path, source):
    with pytest.raises(CorruptInput, match=r"a change of headrace\.public\.t names no place"):
        Stream(tmp_path, connector="oracle").take(change(ORACLE | source, after={"id": 1}, offset={"scn": "5"}))


@pytest.mark.parametrize(
    ("connector", "offset", "place"),
    [
        (
            "sqlserver",
            {"commit_lsn": "00000027:00000ac0:0007", "change_lsn": None, "event_serial_no": 1},
            0x2700000AC00007,
        ),
        ("db2", {"commit_lsn": "00000027:00000ac0:0007"}, 0x2700000AC00007),
        ("sqlserver", {"commit_lsn": "NULL", "change_lsn": "NULL", "event_serial_no": 1}, 2),
        ("oracle", {"scn": "2122180", "commit_scn": "2122185:1:06001c00,2122190:2:0a00-0b00"}, 2122190),
        ("oracle", {"scn": "1513734", "commit_scn": None, "snapshot_scn": "1513700"}, 1513734),
        ("mongodb", {"sec": 1685733798, "ord": 1, "resume_token": token(CHANGED)}, 0x647A41A6 << 32 | 1),
        ("mongodb", {"sec": -1, "ord": -1, "resume_token": token(CHANGED)}, 0x647A41A6 << 32 | 1),
        ("mongodb", {"sec": -1, "ord": -1, "resume_token": token(IDLE)}, 0x63515EAC << 32 | 2),
    ],
)
def test_an_offset_has_a_place_and_is_read_again_from(connector, offset, place):
    within = json.dumps(offset | {"transaction_id": "7", "transaction_data_collection_order_t": 3}).encode()
    assert place_of(connector, within) == place
    assert json.loads(restart_offset(connector, within)) == offset
    # While rows are copied.
    for mark in ({"snapshot": "INITIAL"}, {"initsync": True}):
        assert restart_offset(connector, json.dumps(offset | mark).encode()) is None


@pytest.mark.parametrize(
    "offset",
    [
        "{}",
        '{"commit_lsn":null}',
        '{"sec":1}',
        '{"sec":-1,"ord":-1}',
        '{"sec":-1,"ord":-1,"resume_token":"eyJf"}',
        '{"sec":-1,"ord":-1,"resume_token":7}',
        '{"commit_scn":"x"}',
        '{"scn":"0"}',
    ],
)
def test_an_offset_without_a_place_is_damaged(offset):
    with pytest.raises(CorruptInput, match="names no place"):
        place_of("sqlserver", offset)


def test_changes_of_one_commit_are_one_transaction_once_a_later_one_comes(tmp_path):
    stream = Stream(tmp_path, connector="sqlserver")
    stream.take(
        wire.begin(1, 1),
        sqlserver("000443d8:0073d0da:0005", "000443d8:0073d037:00a8", number=1),
        sqlserver("000443d8:0073d0da:0005", "000443d8:0073d037:00a9", number=2),
    )
    assert stream.changes == []
    stream.take(sqlserver("000443d8:0073d0da:0006", "000443d8:0073d0da:0001", number=3))
    first, second = stream.changes
    assert [each["after"]["id"] for each in (first, second)] == [1, 2]
    assert first["source"]["position"] == "00000001/x000000000000000443d80073d0da0004/00000000"
    assert second["source"]["position"] == "00000001/x000000000000000443d80073d0da0004/00000001"
    assert second["source"]["commit_lsn"] == "000443d8:0073d0da:0005"
    assert second["source"]["change_lsn"] == "000443d8:0073d037:00a9"
    assert (second["source"]["connector"], second["source"]["schema"]) == ("sqlserver", "dbo")
    assert second["transaction"]["last"] is True
    # From the last of them on it is read again, as a transaction that begins.
    offset = json.loads(stream.marks.offset_at(0x443D80073D0DA0005)[1])
    assert offset == {
        "commit_lsn": "000443d8:0073d0da:0005",
        "change_lsn": "000443d8:0073d037:00a9",
        "event_serial_no": 1,
    }
    sealed = stream.batcher.seal()
    batch = decode(sealed.properties, "zstd", sealed.body)
    assert batch.last == Position(1, 0x443D80073D0DA0004, 1)
    # As an event of CloudEvents it has its position.
    events = CloudEvents("a/b").headers(batch, [1] * len(batch.segments))
    assert dict(events[len(batch.keys) - 1])["ce_id"].decode() == str(batch.last)


def test_the_newest_commit_is_sent_once_debezium_has_found_nothing_behind_it(tmp_path):
    stream = Stream(tmp_path, connector="sqlserver")
    stream.take(sqlserver("00000027:00000758:0005", "00000027:00000758:0003"))
    at = {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}
    # The first one may have come with the change.
    stream.take(heartbeat(at))
    assert stream.changes == []
    stream.take(heartbeat(at))
    assert len(stream.changes) == 1
    assert stream.stream.reached == 0x27000007580005
    # What is of the same commit after all has no position any more.
    with pytest.raises(CorruptInput, match="comes behind those of a later place"):
        stream.take(sqlserver("00000027:00000758:0005", "00000027:00000758:0004"))


def test_what_is_read_again_is_not_sent_again_and_what_is_out_of_order_ends_the_edge(tmp_path):
    at = {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}
    stream = Stream(tmp_path, connector="sqlserver", reached=0x27000007580005, offset=json.dumps(at))
    stream.take(
        sqlserver("00000027:00000758:0005", "00000027:00000758:0002"),
        sqlserver("00000027:00000758:0005", "00000027:00000758:0003"),
        sqlserver("00000027:00000ac0:0007", "00000027:00000ac0:0002", number=2),
        sqlserver("00000027:00000ac1:0007", "00000027:00000ac0:0002", number=3),
    )
    assert [each["after"]["id"] for each in stream.changes] == [2]
    with pytest.raises(CorruptInput, match="comes behind those of a later place"):
        stream.take(sqlserver("00000027:00000ac0:0007", "00000027:00000ac0:0003"))


@pytest.mark.parametrize("connector", ["sqlserver", "db2"])
def test_what_comes_of_a_place_that_was_sent_ends_the_edge_in_each_session_and_is_not_passed_over(tmp_path, connector):
    """After a restart it was dropped without a word."""
    stream = Stream(tmp_path, connector=connector)
    at = {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}
    stream.take(sqlserver("00000027:00000758:0005", "00000027:00000758:0003"), heartbeat(at), heartbeat(at))
    late = sqlserver("00000027:00000758:0005", "00000027:00000758:0004")
    place = stream.stream.reached
    again = Stream(tmp_path, connector=connector, reached=place, offset=stream.marks.offset_at(place)[1])
    for session in (stream, again):
        with pytest.raises(CorruptInput, match="or when its place was sent"):
            session.take(late)


def test_changes_out_of_their_order_that_come_again_are_known(tmp_path):
    # As SQL Server has some of a commit: Debezium then sends those behind the second one again.
    commit = "00000027:00000758:0005"
    changes = [sqlserver(commit, f"00000027:00000758:{n:04x}", number=n) for n in (2, 4, 3)]
    stream = Stream(tmp_path, connector="sqlserver").take(
        *changes, sqlserver("00000027:00000759:0001", "00000027:00000759:0001")
    )
    assert [each["after"]["id"] for each in stream.changes] == [2, 4, 3]
    place = stream.stream.reached
    offset = stream.marks.offset_at(place)[1]
    assert json.loads(offset)["change_lsn"] == "00000027:00000758:0004"
    again = Stream(tmp_path, connector="sqlserver", reached=place, offset=offset).take(*changes)
    assert (again.changes, again.stream.reached) == ([], place)


@pytest.mark.parametrize("connector", ["sqlserver", "db2"])
def test_changes_of_one_change_lsn_are_known_by_their_numbers(tmp_path, connector):
    """Those behind the first one of a change LSN were dropped without a word after a restart."""
    commit, change_lsn = "00000027:00000758:0005", "00000027:00000758:0003"
    first, second, third = (of_lsns(connector, commit, change_lsn, serial) for serial in (1, 2, 3))
    stream = Stream(tmp_path, connector=connector).take(first, second)
    stream.take(of_lsns(connector, "00000027:00000759:0001", "00000027:00000759:0001", 1))
    place = stream.stream.reached
    offset = stream.marks.offset_at(place)[1]
    assert json.loads(offset)["event_serial_no"] == 2
    again = Stream(tmp_path, connector=connector, reached=place, offset=offset).take(first, second)
    assert (again.changes, again.stream.reached) == ([], place)
    with pytest.raises(CorruptInput, match="or when its place was sent"):
        again.take(third)


def test_a_place_is_compared_with_its_own_changes_alone(tmp_path):
    # One of MongoDB's by its token, behind one that has none.
    stream = Stream(tmp_path, connector="mongodb", reached=5).take(mongodb(100, 1, 1, 1))
    offset = {"sec": 101, "ord": 1, "resume_token": token(CHANGED)}
    stream.take(change(MONGODB | {"ord": 1}, after="{}", key={"id": "2"}, offset=offset), mongodb(102, 1, 3, 1))
    assert [each["after"]["id"] for each in stream.changes] == ["1", "2"]


@pytest.mark.parametrize("none", [None, "NULL"])
def test_what_the_log_has_of_the_place_of_the_copy_is_in_the_copy(tmp_path, none):
    """The first `run` of SQL Server and Db2 behind a copy ended: a new process reads from that place on, and not behind it."""
    commit, offset = "00000027:00000758:0005", {"commit_lsn": "00000027:00000758:0005", "change_lsn": none}
    place = place_of("sqlserver", json.dumps(offset))
    stream = Stream(tmp_path, connector="sqlserver", reached=place - 1, offset=json.dumps(offset))
    copied = change(SQLSERVER | {"commit_lsn": commit, "snapshot": "last"}, "r", after={"id": 1, "note": "n"})
    stream.stream.write_copy(iter([(RECORD, copied)]), ("k", json.dumps(offset)), stream.rows)
    stream.write()
    log = (
        sqlserver(commit, "00000027:00000758:0003"),
        sqlserver("00000027:00000ac0:0007", "00000027:00000ac0:0002", number=2),
    )
    stream.take(*log, heartbeat({"commit_lsn": "00000027:00000ac1:0001", "change_lsn": none}))
    assert [(each["op"], each["after"]["id"]) for each in stream.changes] == [("r", 1), ("c", 2)]
    # And in the session behind the one that has sent the copy.
    later = Stream(tmp_path, connector="sqlserver", reached=place, offset=json.dumps(offset))
    later.take(*log, heartbeat({"commit_lsn": "00000027:00000ac1:0001", "change_lsn": none}))
    assert [(each["op"], each["after"]["id"]) for each in later.changes] == [("c", 2)]


@pytest.mark.parametrize(
    ("source", "own", "read"),
    [
        ({"commit_scn": "90", "txId": "a"}, {}, True),
        ({"commit_scn": "2122184", "txId": "a"}, {}, True),
        ({"commit_scn": "2122185", "txId": "0a00"}, {}, True),
        ({"commit_scn": "2122185", "txId": "0b01"}, {}, False),
        # Of another redo thread, of which less is read.
        ({"commit_scn": "2122184", "txId": "0a00", "redo_thread": 2}, {}, False),
        ({"commit_scn": "2122186", "txId": "0c00"}, {"txId": "0c00", "txSeq": 3}, True),
        ({"commit_scn": "2122186", "txId": "0c00"}, {"txId": "0c00", "txSeq": 4}, False),
    ],
)
def test_what_an_offset_of_oracle_has_as_read(source, own, read):
    offset = {
        "scn": "100",
        "commit_scn": "2122185:1:0a00-0b00,2122180:2:",
        "snapshot_scn": "90",
        "txId": "0c00",
        "txSeq": 3,
    }
    assert was_read(Source(**{"ts_ms": 1, "redo_thread": 1} | source), own, offset) is read


def test_a_heartbeat_lets_all_be_confirmed_that_is_below_its_place(tmp_path):
    stream = Stream(tmp_path, connector="mongodb", reached=5)
    stream.take(heartbeat({"sec": -1, "ord": -1, "resume_token": token(IDLE)}))
    assert stream.stream.reached == (0x63515EAC << 32 | 2) - 1
    # One at its place may come still.
    stream.take(mongodb(0x63515EAC, 2, 1, 1))
    assert stream.stream.reached == (0x63515EAC << 32 | 2) - 1


def test_two_transactions_of_oracle_that_commit_at_one_scn_are_one(tmp_path):
    stream = Stream(tmp_path, connector="oracle")
    for number, transaction in enumerate(("6.28.807", "6.9.809"), start=1):
        own = {"txId": transaction, "scn": str(2122180 - number), "commit_scn": "2122185", "rs_id": "001234.00012345.0124",
               "ssn": 1, "redo_thread": 1, "start_scn": "2122170"}  # fmt: skip
        offset = {"scn": "2122100", "commit_scn": "2122100:1:0a00"}
        row = {"id": number, "note": "n"}
        stream.take(change(ORACLE | own, after=row, key={"id": number}, offset=offset))
    stream.take(
        heartbeat({"scn": "2122190", "commit_scn": "2122185:1:0a00"}), heartbeat({"scn": "2", "commit_scn": "2122185"})
    )
    assert [each["after"]["id"] for each in stream.changes] == [1, 2]
    assert [each["source"]["txId"] for each in stream.changes] == ["6.28.807", "6.9.809"]
    assert [each["source"]["position"][-17:] for each in stream.changes] == ["002061c8/00000000", "002061c8/00000001"]


@pytest.mark.parametrize(
    ("connector", "field", "name"),
    [
        ("sqlserver", wire.field("n", "string", "decimal", length=10, scale=2), ("numeric", 10, 2)),
        ("oracle", wire.field("n", "string", "NUMBER"), ("text", None, None)),
        ("oracle", wire.field("n", "string", "VARCHAR2", length=20), ("text", None, None)),
        ("db2", wire.field("n", "int16", "SMALLINT"), ("int2", None, None)),
        ("db2", wire.field("n", "bytes", "BLOB"), ("bytea", None, None)),
        (
            "sqlserver",
            wire.field("n", "string", "datetime2", scale=7) | {"name": "io.debezium.time.IsoTimestamp"},
            ("timestamp", None, None),
        ),
    ],
)  # fmt: skip
def test_a_column_has_a_type_of_postgresql_that_holds_its_values(tmp_path, connector, field, name):
    column = Stream(tmp_path, connector=connector).rows.connector.column(field, 1, optional=True)
    assert (column.type_name, column.length, column.scale) == name


def test_rows_of_a_snapshot_are_refused_next_to_the_log(tmp_path):
    own = {
        "commit_lsn": "00000025:00000d98:00a2",
        "change_lsn": None,
        "event_serial_no": None,
        "snapshot": "incremental",
    }
    with pytest.raises(NeedsOperator, match="a row of a snapshot"):
        Stream(tmp_path, connector="db2").take(change(DB2 | own, "r", after={"id": 1}))
