"""What a source's tables looked like when their schema records were sent, and which of them need a copy (L7, T14).

The log has no record of what an alteration does to rows that are there. So each description of a table is compared with the one
before, over restarts too: where rows changed, the schema record has the reasons (`rewritten`), `status` reports them until a copy
was made, and with `[snapshot] after_alter = "copy"` the edge requests that copy. All this is durable before the record is sent.

It also keeps the schema by which records at the far side are to be read, where that depends on the present catalog: a key that
was altered since, for a replica identity that does not include it. Where that schema is not the one noted, or none is, every
change that the far side may have carries its schema record (edge/progress/notes.py has the same for settings). Any
other schema is the log's alone: whoever reads the log again finds the same one.

One JSON file in the state folder. Log positions of a former process are read again after a crash, so of each table a few former
descriptions are kept, with the place from which on each was in force. For the capturing thread alone.
"""

import logging
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from edge.records.alterations import Announcement, Published, TableDescription, alterations
from edge.snapshot import store
from edge.snapshot.store import Form, HistoryFile, Mark, Request, SnapshotStore, rows_moved, unreported
from headrace import files
from headrace.errors import ReplicationError

_log = logging.getLogger(__name__)

_NAME = "tables.json"
#: Descriptions of a table that are kept.
_MOST_FORMS = 4
#: Dropped tables whose names are kept.
_MOST_DROPPED = 10_000
#: For what any transaction may do to a table a copy is requested at most so often, in milliseconds.
_RECURS_MS = 86_400_000
#: What a warning about a table that needs a copy is called, ahead of the table's name.
_COPY_OF = "copy of "
#: What no record depends on is written at most so often, in seconds.
_SAVE_SECONDS = 1.0


class TableHistory:
    """The history of one state folder; `warned` is where the warnings go, by table."""

    def __init__(
        self, folder: Path, source: str, *, copies: bool = False, warned: dict[str, str] | None = None
    ) -> None:
        """Read it; raise NeedsOperator when that cannot be done. `copies`: whether a copy is requested after an alteration."""
        self._path = folder / _NAME
        self._requests = SnapshotStore(folder, source)
        self._copies = copies
        self._warned = {} if warned is None else warned
        self._sent_until = 0
        self._dirty = False
        self._saved_at = 0.0
        known = store.read(self._path)
        self._is_new, self._known = known is None, known or HistoryFile()
        # Identities of tables by their last names, in the order in which they were met; None where that is to be made.
        self._by_name: dict[str, dict[str, None]] | None = None
        for table in {
            *self._known.needs_copy,
            *(name.removeprefix(_COPY_OF) for name in self._warned if name.startswith(_COPY_OF)),
        }:
            self._show(table)

    def begin(self, epoch: int, sent_until: int) -> None:
        """Start a session; no former one has sent changes beyond `sent_until`."""
        self._sent_until = sent_until
        if self._is_new and sent_until:
            self._known.incomplete = self._dirty = True
        self._is_new = False
        if self._known.epoch != epoch:
            # Places of another epoch cannot be compared with those of this one.
            self._known.epoch = epoch
            for forms in self._known.tables.values():
                forms[:] = forms[-1:]
                forms[0].since = forms[0].others_until = 0
                if forms[0].reported is not None:
                    forms[0].rewritten = forms[0].reported = None
            self._dirty = bool(self._known.tables)

    def announce(self, table: TableDescription, place: int, *, is_copied: bool = False) -> Announcement:
        """Note what a table looks like in the transaction at a place, ahead of its schema record there.

        `is_copied`: whether a copy of the whole table begins just there. Raises NoSpace or NeedsOperator where what was found
        cannot be made durable.
        """
        forms = self._known.tables.get(table.identity, [])
        in_force = next((form for form in reversed(forms) if form.since <= place), None)
        if in_force is None or not in_force.describes(table) or in_force.schema != table.schema:
            if forms and in_force is not forms[-1]:
                # The log of before is read again, from a place that is not remembered.
                return Announcement(None, self._others_until(table))
            in_force = self._add(table, in_force, place, is_copied=is_copied)
        rewritten = in_force.rewritten
        if rewritten is not None and in_force.reported is None:
            in_force.reported, self._dirty = place, True
        is_here = in_force.reported == place
        if rewritten and is_here and self._dirty:
            self._save()
        self.save_due()
        return Announcement(rewritten if is_here else None, in_force.others_until)

    def labels(self, current: Mapping[str, Mapping[str, str]]) -> None:
        """Compare the labels of enum types with those that are known: one that was renamed changed rows."""
        former = self._known.labels
        renamed = {
            kind
            for kind, labels in current.items()
            if any(labels.get(number, label) != label for number, label in former.get(kind, {}).items())
        }
        altered: list[tuple[Form, list[str]]] = []
        for forms in self._known.tables.values():
            kinds = {column.type.removeprefix("_") for column in forms[-1].columns} & renamed
            if kinds:
                altered.append((forms[-1], [f"a label of type {kind} was renamed" for kind in sorted(kinds)]))
        self._request(newest.name for newest, _ in altered)
        for newest, reasons in altered:
            self._mark(newest.name, reasons)
            newest.rewritten, newest.reported = list(dict.fromkeys([*unreported(newest), *reasons])), None
        if current != former:
            # After all marks: where one cannot be made, the next session finds the labels again.
            self._known.labels = {kind: dict(labels) for kind, labels in current.items()}
            self._dirty = True
        if renamed:
            self._save()

    def knows(self, table: str, place: int) -> bool:
        """Return whether a table of this name may have sent records ahead of a place; an engine's identities are its names."""
        return self._known.incomplete is True or table in self._sent_before(place)

    def names(self, prefix: str, place: int) -> list[str]:
        """Return the names, in order, that begin with a prefix, of tables that sent records ahead of a place."""
        return sorted(name for name in self._sent_before(place) if name.startswith(prefix))

    def _sent_before(self, place: int) -> set[str]:
        # A log that is read again has to give the same records, whatever came after that place.
        tables = {
            name for name, forms in self._known.tables.items() if forms[0].since < place or len(forms) == _MOST_FORMS
        }
        return tables | self._known.dropped.keys()

    def move(self, tables: Iterable[str], reason: str, place: int, *, recurs: bool = False) -> None:
        """Note that a transaction at a place changed tables' rows without records: their next schema records have the reason.

        The tables need a copy. `recurs`: any transaction may have the same, so that it is no reason for one copy after another.
        Raises NoSpace or NeedsOperator where that cannot be made durable.
        """
        moved = [table for table in dict.fromkeys(tables) if self._moves(table, reason, place, recurs=recurs)]
        self._request(moved, recurs=recurs)
        for table in moved:
            self._move(table, reason, place)
        if moved:
            self._save()

    def mark(self, table: str, reason: str) -> None:
        """Note that a table needs a copy, since the values of one of its rows did not arrive. Raises as `move` does."""
        if not self._is_marked(table, reason):
            self._request([table], recurs=True)
            self._mark(table, [reason])
            self._save()

    def _is_marked(self, table: str, reason: str) -> bool:
        """Whether a table needs a copy for this reason already; the mark is of now from here on."""
        former = self._known.needs_copy.get(table)
        if former is None or reason not in former.reasons:
            return False
        # A copy that has begun may have been ahead of what happened now.
        self._known.needs_copy[table] = msgspec.structs.replace(former, at_ms=time.time_ns() // 1_000_000)
        self._dirty = True
        return True

    def _moves(self, table: str, reason: str, place: int, *, recurs: bool) -> bool:
        """Return whether a move of a table is not noted yet."""
        forms = self._known.tables.get(self._identity(table), [])
        in_force = next((form for form in reversed(forms) if form.since <= place), None)
        if in_force is None:
            return not forms and not (recurs and self._is_marked(table, reason))
        return in_force is forms[-1] and reason not in self._moved_at(in_force, place)

    def _move(self, table: str, reason: str, place: int) -> None:
        """Note a move of a table."""
        self._mark(table, [reason])
        tables, identity = self._known.tables, self._identity(table)
        if forms := tables.get(identity, []):
            reasons = list(dict.fromkeys([*unreported(forms[-1]), *self._moved_at(forms[-1], place), reason]))
            moved = msgspec.structs.replace(forms[-1], since=place, rewritten=reasons, reported=None)
            kept = forms[:-1] if forms[-1].since == place else forms
            tables[identity] = [*kept, moved][-_MOST_FORMS:]

    def _identity(self, table: str) -> str:
        """Return the identity of the table that was last known by a name; the name where there is none."""
        tables = self._known.tables
        return table if table in tables else next((it for it in self._identities(table) if it in tables), table)

    def _identities(self, name: str) -> dict[str, None]:
        """Return the identities of tables, dropped ones included, that were last known by a name."""
        if self._by_name is None:
            names = self._known.dropped | {identity: forms[-1].name for identity, forms in self._known.tables.items()}
            self._by_name = {}
            for identity, last in names.items():
                self._by_name.setdefault(last, {})[identity] = None
        return self._by_name.get(name, {})

    @staticmethod
    def _moved_at(form: Form, place: int) -> list[str]:
        """Return the reasons that are noted for a place: again where the log is read again."""
        return form.rewritten or [] if form.since == place else []

    def empty(self, table: str) -> None:
        """Note that a table has no rows any more, and so needs no copy."""
        forms = self._known.tables.get(table)
        if forms and forms[-1].reported is None and forms[-1].rewritten:
            forms[-1].rewritten, self._dirty = [], True
        if table in self._known.needs_copy:
            self._unmark([table])

    def warn(self, name: str, words: str) -> None:
        """Add a warning about a table, by its own name, to what the status shows until the edge ends."""
        self._warned[name] = words

    @property
    def published(self) -> Published | None:
        """What was published when it was last compared."""
        return self._known.published

    def publication(self, current: Published) -> None:
        """Compare what is published with what was: changes of meanwhile, or rows that moved with a partition, are in no log."""
        former = self._known.published
        if former == current:
            return
        if former is not None:
            marks = self._published_otherwise(former, current)
            self._request(marks)
            for table, reason in marks.items():
                self._mark(table, [reason])
        # After all marks, as labels.
        self._known.published, self._dirty = current, True
        self._save()

    def _published_otherwise(self, former: Published, current: Published) -> dict[str, str]:
        """Return why tables need a copy, by name."""
        captured = {forms[-1].name for forms in self._known.tables.values()}
        if former.kinds != current.kinds:
            return dict.fromkeys(sorted(captured), "the publication publishes other kinds of changes than before")
        reasons = {}
        for table in sorted(captured | former.partitions.keys()):
            if former.tables.get(table) != current.tables.get(table):
                reasons[table] = (
                    "the table left the publication"
                    if table not in current.tables
                    else "the table was added to the publication, or is published with other columns or another row filter"
                )
            elif table in current.partitions and (
                reason := rows_moved(former.partitions.get(table, ""), current.partitions[table])
            ):
                reasons[table] = reason
        return reasons

    def copied(self, table: str, started_ms: int) -> None:
        """Note that a whole table was copied again, beginning at a time in milliseconds since 1970."""
        mark = self._known.needs_copy.get(table)
        if mark is not None and started_ms >= mark.at_ms:
            self._unmark([table])

    def forget_dropped(self, present: Mapping[str, str]) -> None:
        """Forget the tables that the server does not have any more, but for their names; `present`: names by identity.

        They cannot be copied, so warnings about them end.
        """
        history, names = self._known, set(present.values())
        for identity in history.tables.keys() - present.keys():
            history.dropped.pop(identity, None)
            history.dropped[identity] = history.tables.pop(identity)[-1].name
            self._dirty, self._by_name = True, None
        while len(history.dropped) > _MOST_DROPPED:
            del history.dropped[next(iter(history.dropped))]
        self._unmark([table for table in history.needs_copy if table not in names])
        history.recurred = {table: at_ms for table, at_ms in history.recurred.items() if table in names}

    def close(self) -> None:
        """Write what is not written yet, if the disk takes it: nothing depends on it."""
        if self._dirty:
            self._save_if_possible()

    @property
    def warnings(self) -> dict[str, str]:
        """What `status` reports of each table that needs a copy."""
        return {table: self._words(table) for table in sorted(self._known.needs_copy)}

    def _words(self, table: str) -> str:
        reasons = "; ".join(self._known.needs_copy[table].reasons)
        return f"{table} needs a copy ({reasons}): 'headrace edge snapshot {shlex.quote(table)} --replace'"

    def _add(self, table: TableDescription, former: Form | None, place: int, *, is_copied: bool) -> Form:
        """Note a description that was not known, and what it did to rows; where that fails, nothing is noted."""
        catalog = table.catalog()
        numbers = catalog.numbers if catalog is not None else {}
        columns = tuple(
            msgspec.structs.replace(column, number=numbers.get(column.name)) if numbers else column
            for column in table.columns
        )
        reasons: list[str] | None = None
        if former is None:
            if self._others(table, table.name):
                reasons = [f"another table is called {table.name} now"]
            elif table.name in self._known.needs_copy and not is_copied:
                # Rows came to a table that had sent no record.
                reasons = list(self._known.needs_copy[table.name].reasons)
        elif not former.describes(table):
            reasons = alterations(
                former.columns, columns, catalog, types=bool(numbers), newest=former.newest, left_out=former.left_out
            )
            if former.name != table.name:
                reasons = [f"the table was called {former.name}", *(reasons or [])]
        if former is not None and not is_copied and (waiting := unreported(former)):
            reasons = list(dict.fromkeys([*waiting, *(reasons or [])]))
        form = Form(
            table.name,
            columns,
            table.schema,
            place,
            reasons,
            others_until=self._others_until(table),
            newest=catalog.newest if catalog is not None else 0,
            left_out=tuple(table.left_out),
        )
        if reasons and not is_copied:
            self._request([table.name])
            self._mark(table.name, reasons)
        if former is not None and former.name != table.name and not self._others(table, former.name):
            # Nothing has this name any more that could be copied.
            self._known.needs_copy.pop(former.name, None)
            self._show(former.name)
        forms = self._known.tables.get(table.identity, [])
        self._name(table, forms[-1].name if forms else self._known.dropped.get(table.identity))
        self._known.tables[table.identity] = [*forms, form][-_MOST_FORMS:]
        self._dirty = True
        return form

    def _name(self, table: TableDescription, former: str | None) -> None:
        """Note the name of a table, which had a former one."""
        if self._by_name is not None:
            if former is not None:
                self._by_name.get(former, {}).pop(table.identity, None)
            self._by_name.setdefault(table.name, {})[table.identity] = None

    def _others(self, table: TableDescription, name: str) -> bool:
        """Return whether another table was last known by a name."""
        return bool(self._identities(name).keys() - {table.identity})

    def _others_until(self, table: TableDescription) -> int:
        """Return the place up to which the far side may have records of another schema, where none is noted."""
        return self._sent_until if table.depends_on_catalog else 0

    def _request(self, tables: Iterable[str], *, recurs: bool = False) -> None:
        """Request a copy of tables, where that is configured.

        Before they are marked: after a failure in between the alteration is found again.
        """
        now_ms, recurred = time.time_ns() // 1_000_000, self._known.recurred
        if not self._copies:
            return
        due = [table for table in tables if not (recurs and now_ms < recurred.get(table, 0) + _RECURS_MS)]
        if due:
            self._requests.request_once(Request(kind="snapshot", tables=due, replace=True, restart=True))
        if recurs:
            recurred.update(dict.fromkeys(due, now_ms))

    def _mark(self, table: str, reasons: list[str]) -> None:
        """Note that a table needs a copy."""
        former = self._known.needs_copy.get(table)
        listed = [*(former.reasons if former else []), *reasons]
        self._known.needs_copy[table] = Mark(list(dict.fromkeys(listed)), time.time_ns() // 1_000_000)
        _log.warning("%s needs a copy, since its rows changed without a record: %s", table, "; ".join(reasons))
        self._dirty = True
        self._show(table)

    def _unmark(self, tables: Sequence[str]) -> None:
        for table in tables:
            del self._known.needs_copy[table]
            self._dirty = True
            self._show(table)
        if tables:
            self._save_if_possible()

    def _show(self, table: str) -> None:
        """Have the status show whether a table needs a copy."""
        name = f"{_COPY_OF}{table}"
        if table in self._known.needs_copy:
            self._warned[name] = self._words(table)
        else:
            self._warned.pop(name, None)

    def save_due(self) -> None:
        """Write what is not written yet, if the last write is long enough ago and the disk takes it."""
        if self._dirty and time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._save_if_possible()

    def _save_if_possible(self) -> None:
        try:
            self._save()
        except ReplicationError as error:
            self._saved_at = time.monotonic()
            _log.warning("%s", error.message)

    def _save(self) -> None:
        files.write_private(self._path, msgspec.json.encode(self._known))
        self._saved_at, self._dirty = time.monotonic(), False
