"""The copy of existing rows beside the stream: every row once, none older than the log, whatever happens meanwhile."""

import json

from edge.snapshot.folder import Request, SnapshotFolder
from tests.waiting import eventually


def ask(edge, **asked):
    SnapshotFolder(edge.folder / "state", edge.source).ask(Request(**{"kind": "snapshot"} | asked))


def plan(edge):
    return SnapshotFolder(edge.folder / "state", edge.source).plan()


def copied(edge, *names, seconds=30):
    """Wait until the snapshots of these tables have ended; return them."""

    def ended():
        found = {it.name: it for it in plan(edge).tables}
        return set(names) <= set(found) and not any(it.unfinished for it in found.values()) and found

    return eventually(ended, seconds, saying=f"the snapshots of {names} end")


def state_of(interconnect, table):
    """Return the rows that a consumer holds by key, who takes records as they come."""
    held = {}
    for _, key, value in list(interconnect.records):
        if value is None or value.get("source", {}).get("table") != table or "op" not in value:
            continue
        if value["op"] == "t":
            held.clear()
            continue
        name = json.dumps(key, sort_keys=True)
        if value["op"] == "u" and value["before"]:
            held.pop(json.dumps({part: value["before"][part] for part in key}, sort_keys=True), None)
        if value["op"] == "d":
            held.pop(name, None)
        else:
            held[name] = value["after"] | {
                column: held.get(name, {}).get(column, "lost") for column in value.get("unchanged", [])
            }
    return held


def test_rows_of_before_capture_arrive_once_each_as_read(edge, database, interconnect):
    database.execute("create table old (id int primary key, note text)")
    database.execute("insert into old select i, 'note ' || i from generate_series(1, 2500) i")
    edge.command("init")
    with edge.running():
        eventually(edge.reading)
        ask(edge, tables=["public.old"])
        ended = copied(edge, "public.old")

    assert ended["public.old"].state == "done", ended
    read = [(key, value) for _, key, value in interconnect.records if value and value.get("op") == "r"]
    assert [key["id"] for key, _ in read] == list(range(1, 2501))
    assert all(value["after"] == {"id": key["id"], "note": f"note {key['id']}"} for key, value in read)
    assert all(value["source"]["snapshot"] == "incremental" and value["before"] is None for _, value in read)
    assert ended["public.old"].rows == 2500
