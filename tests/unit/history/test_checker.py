"""The checker is checked: it passes a right history, and objects to what is lost, doubled, out of order or out of place."""

import copy

import pytest

from tests.history.checker import SHOWN
from tests.history.transactions import Transaction
from tests.unit.history.right import COMMITTED, OTHER, at, entry, judge, kinds, value_of


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


def test_record_in_a_foreign_partition_is_found(history):
    history[at(history, 703, 0)][0] = 1

    assert kinds(history) == {"partition"}


def test_record_of_another_source_in_the_partition_is_found(history):
    history[at(history, 703, 0)][2]["source"]["name"] = OTHER

    assert "partition" in kinds(history)


def test_change_that_was_never_committed_is_found(history):
    # Given a transaction in Kafka that the source does not know: it was rolled back.
    committed = [transaction for transaction in COMMITTED if transaction.xid != 702]

    assert kinds(history, committed) == {"foreign"}


def test_many_differences_are_told_in_few_words(history):
    committed = [*COMMITTED, *(Transaction(xid, 1, xid, xid + 1, (entry(xid),)) for xid in range(1000, 1100))]

    reported = judge(history, committed)

    assert len(reported) == SHOWN + 1
    assert reported[-1].words == "95 more differences of the kind 'lost'"
