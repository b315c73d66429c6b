"""The history that tests spoil."""

import pytest

from tests.unit.history.right import COMMITTED, KEYS, plain, value_of


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
