"""MongoDB: its places by the time of the cluster, its transactions, and collections as tables."""

import json

from edge.debezium.connectors import was_read
from edge.debezium.frames import Source
from headrace.position import Position
from tests.unit.edge.debezium.test_stream import Stream
from tests.unit.edge.debezium.test_unproven import CHANGED, LSID, MONGODB, change, heartbeat, mongodb, token


def test_what_an_offset_of_mongodb_has_as_read():
    offset, later = ({"sec": 1, "ord": 1, "resume_token": token(each)} for each in (CHANGED, f"{CHANGED}04"))
    source = Source(ts_ms=1, ord=1)
    assert was_read(source, offset, offset)
    assert not was_read(source, later, offset)
    assert not was_read(source, later, {"sec": 1, "ord": 1})


def test_a_transaction_of_mongodb_ends_by_a_heartbeat_of_a_later_time_alone(tmp_path):
    stream = Stream(tmp_path, connector="mongodb", reached=5)
    stream.take(mongodb(0x647A41A6, 1, 1, 5), *[heartbeat({"sec": -1, "ord": -1, "resume_token": token(CHANGED)})] * 3)
    stream.take(mongodb(0x647A41A6, 1, 2, 5))
    assert stream.changes == []
    stream.take(heartbeat({"sec": -1, "ord": -1, "resume_token": token("82647A41A7000000012B0429296E1404")}))
    assert [each["after"]["id"] for each in stream.changes] == ["1", "2"]


def test_a_change_of_mongodb_has_its_place_by_the_time_of_the_cluster(tmp_path):
    # A clock that is a second ahead: by its times the second one comes behind the third, and the edge ended.
    stream = Stream(tmp_path, connector="mongodb", reached=5)
    stream.take(
        mongodb(100, 5, 1, 101_000),
        mongodb(101, 1, 2, 101_001),
        mongodb(102, 1, 3, 102_500),
        mongodb(103, 1, 4, 103_500),
    )
    assert [each["after"]["id"] for each in stream.changes] == ["1", "2", "3"]
    assert [each["source"]["ts_ms"] for each in stream.changes] == [101_000, 101_001, 102_500]
    assert stream.stream.reached == 102 << 32 | 1
    assert stream.changes[1]["source"]["position"] == str(Position(1, 101 << 32, 0))


def test_a_collection_is_a_table_of_its_key_and_its_documents(tmp_path):
    stream = Stream(tmp_path, connector="mongodb", reached=5)
    documents = [
        ("c", None, '{"_id": {"$numberLong": "1004"},"first_name": "Anne"}'),
        # As with capture.mode = change_streams, which has only what was changed.
        ("u", None, None),
        ("d", None, None),
    ]
    for number, (op, before, after) in enumerate(documents, start=1):
        own = {"ord": number, "lsid": LSID, "txnNumber": 1}
        stream.take(
            change(MONGODB | own, op, before, after, key={"id": "1004"}, offset={"sec": 1558965508, "ord": number})
        )
    stream.take(change(MONGODB | {"ord": 9}, after="{}", key={"id": "1"}, offset={"sec": 1558965508, "ord": 9}))
    rows = [(each["op"], each["before"], each["after"], each.get("unchanged")) for each in stream.changes]
    assert rows == [
        ("c", None, {"id": "1004", "document": documents[0][2]}, None),
        ("u", None, {"id": "1004"}, ["document"]),
        ("d", {"id": "1004"}, None, None),
    ]
    assert stream.changes[0]["source"]["table"] == "t"
    assert [json.loads(key) for key in stream.batcher.keys if key and b"1004" in key] == [{"id": "1004"}] * 3
    (table,) = [each["tableChanges"][0] for each in stream.values if "tableChanges" in each]
    assert [column["name"] for column in table["table"]["columns"]] == ["id", "document"]
