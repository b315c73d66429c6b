"""Asking an edge under test for snapshots, and looking at what came of them."""

import json

from bridge.whole_topics import DeadLetterIndex
from edge.commands.snapshot import snapshot
from edge.snapshot.store import Request, SnapshotStore
from tests.rules.waiting import eventually


def folder(edge):
    return SnapshotStore(edge.folder / "state", edge.source)


def ask(edge, *names, **asked):
    """Leave a request, as the command does."""
    folder(edge).request(Request(**{"kind": "snapshot", "tables": list(names)} | asked))


def plans(edge):
    """Return the plans of tables by name."""
    return {it.name: it for it in folder(edge).plan().tables}


def ended(edge, *names, seconds=180):
    """Wait until the snapshots of these tables have ended, and all others; return them by name."""

    def found():
        if folder(edge).waiting():
            return None
        tables = plans(edge)
        return set(names) <= set(tables) and not any(it.unfinished for it in tables.values()) and tables

    return eventually(found, seconds, saying=f"the snapshots of {names} end")


def copy(edge, *names, **asked):
    """Ask a running edge for snapshots, and wait for their end."""
    ask(edge, *names, **asked)
    return ended(edge, *names)


def replay(edge, letters):
    """Give the command a list of dead letters, and wait for the end of what it asks for."""
    listed = edge.folder / "letters.json"
    listed.write_text(json.dumps(letters))
    snapshot.main(["--config", str(edge.path), "--dead-letters", str(listed)], standalone_mode=False)
    return ended(edge, *{letter["table"] for letter in letters})


def open_letters(interconnect):
    """Return the letters that `headrace bridge dead-letters --open --json` would list of what arrived."""
    letters = DeadLetterIndex()
    for batch, _ in list(interconnect.arrived):
        for key, value in zip(batch.keys, batch.values, strict=True):
            letters.add(key, value, "")
    return [letter for letter in letters.rows() if letter["state"] == "open"]


def as_letters(interconnect, table, *, op="c"):
    """Return an open letter for each change of a table, as if it had been too large."""
    return [
        {"state": "open", "source": value["source"]["name"], "table": f"{value['source']['schema']}.{table}"}
        | {"op": op, "key": json.dumps(key), "bytes": 1}
        for key, value in records(interconnect, table, op)
    ]


def records(interconnect, table, *ops):
    """Return (key, value) of a table's changes in order."""
    rows = [(key, value) for _, key, value in list(interconnect.records) if value and value.get("op")]
    return [
        (key, value) for key, value in rows if value["source"]["table"] == table and value["op"] in (ops or "cudrt")
    ]


def schema_records(interconnect):
    """Return the schema records in order, without those that mark a copy."""
    values = [value for _, _, value in list(interconnect.records) if value and "tableChanges" in value]
    return [value for value in values if "transaction" not in value]


def marks(interconnect, table):
    """Return the marks of a table's copies in order."""
    values = [value for _, _, value in list(interconnect.records) if value and "tableChanges" in value]
    return [
        value["source"]["snapshot"] for value in values if "transaction" in value and value["source"]["table"] == table
    ]


def raw(interconnect, op):
    """Return the bytes of key and new row of all changes of a kind, in order."""
    results = []
    for batch, _ in interconnect.arrived:
        for key, value in zip(batch.keys, batch.values, strict=True):
            if value and b'"op":"%b","ts_ms"' % op in value:
                results.append((key, value[value.index(b'"after":') : value.index(b',"source":')]))
    return results


def held(interconnect, table):
    """Return the rows of a consumer who takes records as they come, by key; `lost` is what it was never sent."""
    rows = {}
    for key, value in records(interconnect, table):
        if value["op"] == "t":
            rows.clear()
            continue
        name = former = json.dumps(key, sort_keys=True)
        if value["op"] == "u" and value["before"]:
            former = json.dumps({part: value["before"][part] for part in key}, sort_keys=True)
        old = rows.pop(former, {})
        if value["op"] != "d":
            rows[name] = value["after"] | {column: old.get(column, "lost") for column in value.get("unchanged", [])}
    return rows


def stored(database, table):
    """Return the rows of the database in the same form; the table's key is `id`."""
    rows = [row for (row,) in database.execute(f"select to_jsonb(t) from {table} t")]
    return {json.dumps({"id": row["id"]}): row for row in rows}
