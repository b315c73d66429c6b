"""A right history, to be spoilt at will, and what the checker says of one."""

import json

from tests.history.checker import check
from tests.history.records import record
from tests.history.transactions import Change, Number, Transaction

SOURCE, OTHER = "jakarta/bank", "london/shop"
KEYS = {"public.accounts": ("id",)}


def account(op, number, balance, old=None):
    row = {"id": Number(str(number)), "balance": balance}
    return Change("public.accounts", op, {"id": row["id"]} if op == "d" else old, None if op == "d" else row)


def entry(delta):
    return Change("public.history", "c", None, {"delta": Number(str(delta)), "at": "2026-01-31T09:15:00.25"})


COMMITTED = [
    Transaction(700, 1000, 90, 120, (Change("public.accounts", "t", None, None),)),
    Transaction(701, 2000, 200, 240, (account("c", 1, "10.00"), account("c", 2, "20.00"), entry(30))),
    Transaction(703, 3000, 300, 340, (account("u", 1, "11.00"), entry(1), account("d", 2, None), entry(-20))),
    Transaction(702, 4000, 400, 440, (account("u", 3, "11.00", {"id": Number("1")}),)),
]
COLUMNS = {"public.accounts": ["id", "balance"], "public.history": ["delta", "at"]}


def plain(held):
    if isinstance(held, dict):
        return {name: plain(value) for name, value in held.items()}
    return int(held.text) if isinstance(held, Number) else held


def value_of(transaction, ordinal, change):
    schema, table = change.table.split(".")
    commit = transaction.end - 20
    source = {"name": SOURCE, "ts_ms": transaction.commit_ms, "schema": schema, "table": table, "txId": transaction.xid}
    source |= {"lsn": commit, "position": f"{7:08x}/{commit:016x}/{ordinal:08x}"}
    if change.op == "schema":
        columns = [{"name": name} for name in COLUMNS[change.table]]
        described = {"primaryKeyColumnNames": list(KEYS.get(change.table, ())), "columns": columns}
        return {"source": source, "tableChanges": [{"table": described}]}
    order = {"id": f"{transaction.xid}:{commit}", "total_order": ordinal + 1}
    if ordinal == len(transaction.changes) - 1:
        order["last"] = True
    return {
        "before": plain(change.old),
        "after": plain(change.new),
        "source": source,
        "op": change.op,
        "transaction": order,
    }


def judge(entries, committed=COMMITTED):
    topic = [
        record(partition, offset, json.dumps(key).encode() if key else None, json.dumps(value).encode())
        for offset, (partition, key, value) in enumerate(entries)
    ]
    return check(SOURCE, committed, topic, partition=0, keys=KEYS)


def kinds(entries, committed=COMMITTED):
    return {difference.kind for difference in judge(entries, committed)}


def at(entries, xid, ordinal):
    """Return the place of a change in the history."""
    return next(
        place
        for place, (_, _, value) in enumerate(entries)
        if "op" in value and value["source"]["txId"] == xid and value["transaction"]["total_order"] == ordinal + 1
    )
