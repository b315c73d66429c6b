"""The views `lake.published` and `lake.tables`, as SQL shows them: what was published when, and each table as it is published."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.lake.arrow_types import Column
from headrace.lake.published import PublishedTable, is_gone
from headrace.lake.storage import Storage
from headrace.lake.table import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa

_PUBLISHED = ("stream", "load", "started_at", "finished_at", "bronze_version", "bronze_done", "changes", "positions")
_TABLES = ("stream", "table", "path", "version", "history", "load", "positions", "state", "reason")


class StateView(LakeTable):
    """Rows in memory, made of the lake's table `state` at a version."""

    def __init__(
        self, storage: Storage, published: PublishedTable, rows: "pa.Table", columns: Sequence[str] | None = None
    ) -> None:
        """Take the rows; `columns` are those that are read, all when not given."""
        super().__init__(storage, published, columns)
        self._rows = rows

    def select(self, *columns: str) -> "StateView":
        """Return the view with some of its columns."""
        return StateView(self._storage, self.published, self._rows, columns)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the rows."""
        yield from self._rows.select([column.name for column in self.columns]).to_batches()

    def _all_columns(self) -> list[Column]:
        return [Column(field.name, field.name, field.type) for field in self._rows.schema]


def build(state: PublishedTable, rows: "pa.Table", storage: Storage, as_of: datetime | None) -> dict[str, LakeTable]:
    """Return the views by name, of the rows of `state`: of what was published by a time, or at all."""
    marked = ("stream", "table", "load", "finished_at", "state", "since", "dropped")
    there = [column for column in marked if column in rows.schema.names]
    marks: list[dict[str, Any]] = rows.select(there).to_pylist()
    has_positions = rows["positions"].is_valid().to_pylist()
    newest: dict[tuple[str, str | None], int] = {}
    then: dict[tuple[str, str | None], int] = {}
    streams = []
    for place, mark in enumerate(marks):
        key = (mark["stream"], mark["table"])
        if key not in newest or marks[newest[key]]["load"] < mark["load"]:
            newest[key] = place
        if as_of is not None and mark["finished_at"] > as_of:
            continue
        if mark["table"] is None:
            streams.append(place)
        if key not in then or marks[then[key]]["load"] < mark["load"]:
            then[key] = place
    tables = [
        place
        for (stream, name), place in then.items()
        if name is not None
        and marks[place]["state"] != "dropped"
        and not is_gone(marks[place], marks[newest[stream, name]])
    ]
    # A table that a load did not change has the positions of its stream.
    own = [place if has_positions[place] else then.get((marks[place]["stream"], None), place) for place in tables]
    current = rows.take(tables)
    current = current.set_column(current.schema.get_field_index("positions"), "positions", rows["positions"].take(own))
    views: dict[str, LakeTable] = {}
    for name, content, columns in (
        ("lake.published", rows.take(streams), _PUBLISHED),
        ("lake.tables", current, _TABLES),
    ):
        there = [column for column in columns if column in content.schema.names]
        published = PublishedTable(name, state.path, state.version, "", "", {})
        views[name] = StateView(storage, published, content.select(there))
    return views
