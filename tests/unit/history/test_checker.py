"""The checker is checked: it passes a right history, and objects to every way in which one can be wrong."""

import copy
import json

import pytest

from tests.history.checker import SHOWN, check
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


@pytest.fixture
def history():
    """The right history as a list of [partition, key, value], to be spoilt at will."""
    entries = []
    described = set()
    for transaction in COMMITTED:
        for ordinal, change in enumerate(transaction.changes):
            if change.table not in described:
                entries.append([0, None, value_of(transaction, ordinal, change._replace(op="schema"))])
                described.add(change.table)
            row = change.new or change.old
            key = {"id": plain(row["id"])} if row and change.table in KEYS else None
            entries.append([0, key, value_of(transaction, ordinal, change)])
    return entries


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


def test_right_history_passes(history):
    assert judge(history) == []


def test_schema_records_that_come_again_pass(history):
    again = value_of(COMMITTED[3], 0, COMMITTED[3].changes[0]._replace(op="schema"))
    history.insert(at(history, 702, 0), [0, None, again])

    assert judge(history) == []


def test_records_of_another_source_elsewhere_are_no_concern(history):
    other = copy.deepcopy(history[1])
    other[0] = 1
    other[2]["source"]["name"] = OTHER

    assert judge([*history, other]) == []


@pytest.mark.parametrize("xid_and_ordinal", [(700, 0), (701, 0), (701, 2), (703, 1), (702, 0)])
def test_lost_change_is_found(history, xid_and_ordinal):
    del history[at(history, *xid_and_ordinal)]

    assert "lost" in kinds(history)


def test_lost_transaction_is_found(history):
    del history[at(history, 702, 0)]

    (difference,) = judge(history)
    assert difference == ("lost", "change 0 of transaction 702 (u public.accounts) is not there")


def test_everything_lost_is_found():
    assert kinds([]) == {"lost"}


@pytest.mark.parametrize("place", ["behind it", "at the end"])
def test_doubled_change_is_found(history, place):
    first = at(history, 703, 1)
    history.insert(first + 1 if place == "behind it" else len(history), copy.deepcopy(history[first]))

    assert {"doubled", "order"} <= kinds(history)


def test_doubled_transaction_is_found(history):
    first, last = at(history, 703, 0), at(history, 703, 3)
    history += copy.deepcopy(history[first : last + 1])

    assert {"doubled", "order"} <= kinds(history)


def test_swapped_changes_are_found(history):
    first, second = at(history, 703, 1), at(history, 703, 2)
    history[first], history[second] = history[second], history[first]

    assert "order" in kinds(history)


def test_swapped_contents_are_found(history):
    first, second = history[at(history, 703, 1)], history[at(history, 703, 3)]
    first[2]["after"], second[2]["after"] = second[2]["after"], first[2]["after"]

    assert kinds(history) == {"altered"}


def test_swapped_transactions_are_found(history):
    history.append(history.pop(at(history, 702, 0)))
    history.insert(at(history, 703, 0), history.pop())

    assert "order" in kinds(history)


def test_transactions_in_order_of_xid_instead_of_commit_are_found(history):
    # Given positions that grow with the swapped order, only the source's own order can tell.
    first, second = at(history, 703, 0), at(history, 702, 0)
    history[second][2]["source"]["position"] = f"{7:08x}/{250:016x}/{0:08x}"
    history.insert(first, history.pop(second))

    assert {"order", "position"} <= kinds(history)


@pytest.mark.parametrize(
    ("where", "held"),
    [
        (("after", "balance"), "11.01"),
        (("after", "balance"), 11.0),
        (("after", "balance"), None),
        (("after", "extra"), 1),
        (("after",), None),
        (("before",), {"id": 1}),
        (("op",), "c"),
        (("source", "lsn"), 1),
        (("source", "ts_ms"), 3001),
        (("source", "table"), "history"),
        (("transaction", "id"), "703:1"),
        (("transaction", "total_order"), 2),
        (("unchanged",), ["balance"]),
    ],
)
def test_altered_change_is_found(history, where, held):
    value = history[at(history, 703, 0)][2]
    *path, name = where
    for step in path:
        value = value[step]
    value[name] = held

    assert "altered" in kinds(history)


def test_value_that_is_missing_is_found(history):
    del history[at(history, 703, 0)][2]["after"]["balance"]

    assert kinds(history) == {"altered"}


@pytest.mark.parametrize("key", [None, {"id": 2}, {"id": 1, "balance": "11.00"}])
def test_altered_key_is_found(history, key):
    history[at(history, 703, 0)][1] = key

    assert kinds(history) == {"altered"}


def test_record_in_a_foreign_partition_is_found(history):
    history[at(history, 703, 0)][0] = 1

    assert kinds(history) == {"partition"}


def test_record_of_another_source_in_the_partition_is_found(history):
    history[at(history, 703, 0)][2]["source"]["name"] = OTHER

    assert "partition" in kinds(history)


def test_half_a_transaction_is_found(history):
    del history[at(history, 703, 2) : at(history, 703, 3) + 1]

    assert {"half", "lost"} == kinds(history)


def test_missing_last_is_found(history):
    del history[at(history, 703, 3)][2]["transaction"]["last"]

    assert kinds(history) == {"last"}


def test_last_in_the_middle_is_found(history):
    history[at(history, 703, 1)][2]["transaction"]["last"] = True

    assert kinds(history) == {"last"}


def test_change_that_was_never_committed_is_found(history):
    # Given a transaction in Kafka that the source does not know: it was rolled back.
    committed = [transaction for transaction in COMMITTED if transaction.xid != 702]

    assert kinds(history, committed) == {"foreign"}


def test_position_that_is_not_the_commits_is_found(history):
    source = history[at(history, 702, 0)][2]["source"]
    source["position"] = f"{7:08x}/{440:016x}/{0:08x}"

    assert "position" in kinds(history)


def test_epoch_that_moves_within_a_transaction_is_found(history):
    source = history[at(history, 703, 3)][2]["source"]
    source["position"] = source["position"].replace("00000007", "00000008")

    assert "position" in kinds(history)


@pytest.mark.parametrize("table", ["accounts", "history"])
def test_missing_schema_record_is_found(history, table):
    (place,) = [
        place
        for place, (_, _, value) in enumerate(history)
        if "tableChanges" in value and value["source"]["table"] == table
    ]
    del history[place]

    assert kinds(history) == {"schema"}


def test_schema_record_behind_its_change_is_found(history):
    history[0], history[1] = history[1], history[0]

    assert kinds(history) == {"schema"}


def test_schema_record_with_another_key_is_found(history):
    history[0][2]["tableChanges"][0]["table"]["primaryKeyColumnNames"] = ["balance"]

    assert kinds(history) == {"schema"}


def test_schema_record_without_a_column_is_found(history):
    del history[0][2]["tableChanges"][0]["table"]["columns"][1]

    assert kinds(history) == {"schema"}


def test_many_differences_are_told_in_few_words(history):
    committed = [*COMMITTED, *(Transaction(xid, 1, xid, xid + 1, (entry(xid),)) for xid in range(1000, 1100))]

    told = judge(history, committed)

    assert len(told) == SHOWN + 1
    assert told[-1].words == "95 more differences of the kind 'lost'"
