"""`[records]` envelope and key_change of a real MariaDB: fields of Debezium's, and changed keys as delete and create."""

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, records
from tests.rules.waiting import eventually

SETTINGS = """
[records]
envelope = "debezium"
key_change = "delete-create"
tombstones = true
"""


def shown(interconnect, table):
    """Key and operation of each record of a table; None for a tombstone."""
    return [
        (key["id"], value and value["op"])
        for _, key, value in list(interconnect.records)
        if key and (value is None or value["source"]["table"] == table)
    ]


def test_changes_have_debeziums_fields_and_changed_keys_are_two_records(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, rest=SETTINGS)
    edge.init()
    with edge.running():
        maria.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
        maria.execute("update t set note = 'x', id = if(id = 2, 20, id)")
        maria.execute("delete from t where id = 3")
        arrive(interconnect, 8)
        eventually(lambda: interconnect.records[-1][2] is None, saying="the last tombstone is there")
        assert shown(interconnect, "t") == [
            (1, "c"), (2, "c"), (3, "c"), (1, "u"), (2, "d"), (2, None), (20, "c"), (3, "u"), (3, "d"), (3, None),
        ]  # fmt: skip
        copy(edge, f"{maria.name}.t")

    changes = [value for _, _, value in interconnect.records if value and value.get("op") in {"c", "u", "d"}]
    inserts, updates = changes[:3], changes[3:7]
    for event, rows in ((inserts, [0, 1, 2]), (updates, [0, 1, 1, 2])):
        assert [change["source"]["row"] for change in event] == rows
        assert len({change["source"]["pos"] for change in event}) == 1
        numbers = [change["transaction"] for change in event]
        assert [(it["total_order"], it["data_collection_order"]) for it in numbers] == [
            (number, number) for number in range(1, len(event) + 1)
        ]
    # This server does not write where events within a transaction are: it is the beginning of its GTID event.
    log = maria.execute(f"show binlog events in '{inserts[0]['source']['file']}'")
    assert {change["source"]["pos"] for change in changes} <= {row[1] for row in log if row[2] == "Gtid"}
    deleted, created = updates[1], updates[2]
    assert (deleted["before"]["id"], deleted["after"], created["before"], created["after"]["id"]) == (2, None, None, 20)
    assert deleted["source"]["position"] == created["source"]["position"]
    assert all(change["ts_us"] == change["ts_ms"] * 1000 and change["source"]["query"] is None for change in changes)
    # Copied rows are in the same envelope.
    copied = records(interconnect, "t", "r")
    assert [key["id"] for key, _ in copied] == [1, 20]
    assert [value["transaction"]["data_collection_order"] for _, value in copied] == [1, 2]
    assert set(copied[0][1]["source"]) == set(changes[0]["source"])
