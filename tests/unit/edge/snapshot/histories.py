"""Sessions of a source that keep the history of its tables, and what they send of it."""

import json

from edge.records.alterations import Catalog
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from tests.unit.edge.postgres.messages import (
    EPOCH,
    INT4,
    Column,
    Log,
    relation,
)

SOURCE = "jakarta/bank"
KEY, NOTE = Column("id", INT4, key=True), Column("note")
BEFORE = relation(KEY, NOTE)


def catalog(*filled, **numbers):
    """What the catalog says of columns, by their numbers; some of them have a value in rows of before."""
    newest = max(numbers.values())
    return lambda _relation: Catalog(numbers, {name: name in filled for name in numbers}, newest)


def opened(folder, **options):
    table_history = TableHistory(folder, SOURCE, **options)
    table_history.begin(EPOCH, options.get("sent_until", 0))
    return table_history


def session(folder, *transactions, catalog_of=lambda _: None, sent_until=0, copies=False, **options):
    """Return the values of what a session reads: for each transaction its place, and messages."""
    history = TableHistory(folder, SOURCE, copies=copies)
    history.begin(EPOCH, sent_until)
    log = Log(history=history, catalog_of=catalog_of, **options)
    for place, *messages in transactions:
        log.transaction(*messages, commit_lsn=place, end=place + 10)
    history.close()
    return [json.loads(value) for batch in log.batches() for value in batch.values]


def schemas(values):
    return [(value["source"]["position"][9:25], value.get("rewritten")) for value in values if "tableChanges" in value]


def place(number):
    return f"{number:016x}"


def waiting(folder):
    return [request.tables for _, request in SnapshotStore(folder, SOURCE).waiting()]
