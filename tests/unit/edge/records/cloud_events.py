"""Reads the headers of CloudEvents in a batch, as a consumer would."""

from typing import NamedTuple

from headrace.batch import Batch
from tests.unit.edge.postgres.messages import opened

#: What every event has; a subject only where there is something to name.
REQUIRED = {"ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type"}


class Event(NamedTuple):
    """What differs between the events of one source: the id's end, the type's, the subject, the form of the value."""

    id: str
    type: str
    subject: str | None
    form: str


def batch_of(batcher):
    """What was added to a batcher, as the bridge decodes it."""
    return opened(batcher.seal())


def named(batch: Batch, index):
    """The headers of a record that begin as those of events do, once each."""
    given = [
        (name, value.decode()) for name, value in batch.headers.get(index, []) if name in REQUIRED | {"ce_subject"}
    ]
    assert len(given) == len(dict(given))
    return dict(given)


def events(batch: Batch):
    """The event that each record of a batch is; None for one that is none."""
    return [_event(named(batch, index), position) for index, position in enumerate(batch.positions())]


def _event(headers, position):
    if not headers:
        return None
    assert headers.keys() - {"ce_subject"} == REQUIRED
    assert (headers["ce_specversion"], headers["ce_source"]) == ("1.0", "/headrace/jakarta/bank")
    assert headers["ce_id"].startswith(str(position))
    form = headers["content-type"].removeprefix("application/")
    kind = headers["ce_type"].removeprefix("headrace.")
    return Event(headers["ce_id"].removeprefix(str(position)[:-8]), kind, headers.get("ce_subject"), form)
