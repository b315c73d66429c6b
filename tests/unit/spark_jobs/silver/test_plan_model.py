"""Random histories of a stream: after each load, every published table equals a fold of bronze up to its positions.

What decides is the real code (table_task.py, held_back.py, published.py); bronze, rows and commits are
lists here. Histories have copies that end, are cancelled or begin again, tables that stop, fail and go on, loads that die between
any two commits, rebuilds, lost folders, and bronze that is made again or put back from an older copy; sources whose records come
out of order or whose topics are not seen, and replays.
"""

import json
import random
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace

import pytest

from headrace.errors import NeedsOperator
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema
from spark_jobs.silver import batch_profile, held_back, offenders, table_load, table_task, tables_load
from spark_jobs.silver.commit import Base
from spark_jobs.silver.profiles import BatchProfile, Beyond, TableProfile, Truncate
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.state import published
from spark_jobs.state.published_rows import Published, Table

SOURCES = ("jakarta/bank", "london/bank")
TABLES = ("public.a", "public.b", "public.c")
#: A table in a topic that may not be seen.
HIDDEN = "public.hidden"
HISTORIES = 75
STEPS = 60


class Stream:
    """A stream's section in the lake's file; `tables` stands for whatever an operator changes in it."""

    history, deletes, on_incompatible, on_unsupported, readers = False, "hard", "stop", "stop", "delta"

    def __init__(self):
        self.tables = {}

    def history_of(self, name):
        return None

    def marks_deleted(self, name):
        return False

    nulls_unsupported = is_open = rebuilds = marks_deleted


@dataclass(frozen=True)
class Record:
    """A record of bronze."""

    source: str
    table: str
    position: str
    #: An upsert, a truncate, a schema record, or a mark of a copy.
    kind: str
    key: int = 0
    last: bool = False
    #: Whether silver cannot hold it.
    bad: bool = False
    partition: int = 0
    #: Whether its source has something in a topic that the lake may not see.
    unseen: bool = False
    #: Of a schema record, whether it has another key.
    odd: bool = False

    @property
    def is_change(self):
        return self.kind in "ct"


@lru_cache(maxsize=1024)
def schema_text(source, table, mark, odd):
    schema, _, name = table.partition(".")
    column = {"name": "id", "typeName": "int8", "length": None, "scale": None, "position": 1, "optional": False}
    columns = [column, column | {"name": "name", "position": 2}]
    of = {"name": source, "schema": schema, "table": name, "snapshot": mark, "position": "0"}
    change = {
        "type": "CREATE",
        "id": "x",
        "table": {"primaryKeyColumnNames": ["name" if odd else "id"], "columns": columns},
    }
    text = json.dumps({"databaseName": "b", "schemaName": schema, "ddl": None, "source": of, "tableChanges": [change]})
    return text, TableSchema.parse(text)


def schema_record(record):
    mark = record.kind if record.kind in {COPY_BEGINS, COPY_ENDS} else None
    text, schema = schema_text(record.source, record.table, mark or "false", record.odd)
    return SchemaRecord(
        source=record.source, table=record.table, position=record.position, value=text, schema=schema, mark=mark
    )


def groups_of(records, low):
    """Return what batch_profile finds of each source in each partition, for the judgement of their order."""
    groups = {}
    for r in records:
        if r.is_change:
            groups.setdefault((r.source, r.partition, r.position > low.get(r.source, "")), []).append(r.position)
    return [
        {"source": s, "partition": p, "new": new, "changes": 1, "first": min(of), "final": max(of)}
        for (s, p, new), of in groups.items()
    ]


def profile(records, low, upto=None, *, applied=None, held_back=None):
    """Return what batch_profile.profile finds, in Python."""
    chosen = [r for r in records if r.position > low.get(r.source, "")]
    high = dict(low) if upto is None else dict(upto)
    disordered = batch_profile.find_disordered(groups_of(records if applied else chosen, low), applied or {})
    held = disordered | (held_back or {}) if upto is None else {}
    if upto is None:
        for r in chosen:
            if r.last and r.kind != "schema" and r.source not in held:
                high[r.source] = max(r.position, high.get(r.source, ""))
    inside = [r for r in chosen if r.position <= high.get(r.source, "")]
    seen = []
    for source, table in sorted({(r.source, r.table) for r in inside if r.is_change}):
        own = [r for r in inside if (r.source, r.table) == (source, table) and r.is_change]
        truncates = [Truncate(position=r.position, source=source, at=0) for r in own if r.kind == "t"]
        positions = [r.position for r in own]
        seen.append(
            TableProfile(
                source=source,
                table=table,
                changes=len(own),
                keys=1,
                first=min(positions),
                final=max(r.position for r in chosen if (r.source, r.table) == (source, table) and r.is_change),
                truncates=tuple(truncates),
                deletes=False,
                partial=False,
                rekeyed=False,
                rewrites=False,
                keyless=None,
            )
        )
    beyond = {}
    for source in {r.source for r in chosen}:
        over = [r for r in chosen if r.source == source and r.position > high.get(source, "")]
        if over:
            changes = sum(r.is_change for r in over)
            beyond[source] = Beyond(changes=changes, upto=max(r.position for r in over))
    for source, problem in held.items():
        rest = beyond.get(source, Beyond(changes=0, upto=high.get(source, "")))
        beyond[source] = replace(rest, problem=problem)
    partitions = {}
    for r in inside:
        if r.source not in held and r.is_change:
            of_source = partitions.setdefault(r.source, {})
            of_source[str(r.partition)] = max(r.position, of_source.get(str(r.partition), ""))
    marks = [schema_record(r) for r in sorted(inside, key=lambda r: r.position) if not r.is_change]
    return BatchProfile(
        high=high,
        seen=seen,
        committed_ms={},
        beyond=beyond,
        records=marks,
        partitions=partitions,
        disordered=disordered,
    )


def fold(rows, records):
    """Return the rows of a table, by source and key, once records were applied in order."""
    rows = dict(rows)
    for r in sorted(records, key=lambda r: r.position):
        if r.kind == "t":
            rows = {place: position for place, position in rows.items() if place[0] != r.source}
        elif r.kind == "c":
            rows[r.source, r.key] = r.position
    return rows


class StoppedError(Exception):
    """A table cannot go on, for offences of some sources."""

    def __init__(self, offences=None):
        self.offences = offences or {}


class OvertakenError(Exception):
    """A table is beyond the load, or a load died."""


@dataclass
class Folder:
    """A silver table: of each version its positions and rows."""

    versions: list = field(default_factory=list)


class World:
    """A source's log, bronze and silver, and what random steps do to them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lake = SimpleNamespace(root="/lake", stream=lambda _: self.stream)
        self.stream = Stream()
        self.log, self.taken, self.next = [], 0, 1
        self.open = dict.fromkeys(SOURCES, False)
        self.copied = {}
        self.described = set()
        #: Versions of bronze: id of their commit, and records.
        self.bronze = []
        self.ids = 0
        self.folders = {}
        self.published = Published(stream="bank")
        self.shown = {}
        self.cured = False
        #: By source, the partition that it writes to.
        self.partition = dict.fromkeys(SOURCES, 0)
        #: A record that was overtaken in another partition, and those that are in a topic which is not seen.
        self.overtaken, self.unseen = [], []
        #: Whether the overtaken one is in the log; whether the log ever was in another order than its positions.
        self.came, self.shuffled = False, False
        #: Tables of sources that have another key, and how often sources were held back in a table.
        self.odd, self.rekeyed, self.left_out = set(), False, 0
        #: Whether a load has to notice it.
        self.noticed = True

    # What sources do.

    def write(self, source, table, kind, *, key=0, last=True, bad=False):
        position = f"{self.next:08d}"
        self.next += 1
        partition = self.partition[source]
        odd = (source, table) in self.odd
        if (source, table, odd) not in self.described:
            self.described -= {(source, table, not odd)}
            self.described.add((source, table, odd))
            self.log.append(Record(source, table, position, "schema", partition=partition, odd=odd))
        mark_odd = odd and kind in {COPY_BEGINS, COPY_ENDS}
        self.log.append(Record(source, table, position, kind, key, last, bad, partition, odd=mark_odd))
        self.open[source] = not last

    def move(self):
        """Give a source another partition; what it wrote last to the former one may come later."""
        source = self.random.choice(SOURCES)
        if self.overtaken or self.open[source]:
            return
        if (source, TABLES[0]) not in self.odd and self.random.random() < 0.7:
            self.write(source, TABLES[0], "c", key=self.random.randrange(4))
            self.overtaken, self.came, self.shuffled = [self.log.pop()], False, True
            self.noticed = True
        self.partition[source] += 1

    def rekey(self):
        """Give a table of a source another key, or its former one."""
        self.rekeyed = True
        self.odd ^= {(self.random.choice(SOURCES), self.random.choice(TABLES))}

    def arrive(self):
        """Let come what was overtaken."""
        if self.overtaken and not self.came:
            self.log += self.overtaken
            self.came = True

    def hide(self):
        """Let a source describe a table whose topic is not seen, and see it another time."""
        source = self.random.choice(SOURCES)
        if self.unseen:
            self.log += self.unseen
            self.unseen = []
        elif not self.open[source] and (source, HIDDEN, False) not in self.described:
            self.write(source, HIDDEN, "c")
            self.unseen = [self.log.pop()]
            self.log[-1] = replace(self.log[-1], unseen=True)
            self.shuffled = True

    def change(self):
        source = self.random.choice(SOURCES)
        table = self.random.choice(TABLES)
        bad = self.random.random() < 0.2 and not self.cured
        kind = "t" if self.random.random() < 0.08 else "c"
        last = self.random.random() < 0.75
        self.write(source, table, kind, key=self.random.randrange(4), last=last, bad=bad and kind == "c")

    def copy(self):
        """Begin a copy of a table, go on with it, or end it."""
        source, table = self.random.choice(SOURCES), self.random.choice(TABLES)
        if self.open[source]:
            return
        if (source, table) not in self.copied or self.random.random() < 0.2:
            self.copied[source, table] = True
            self.write(source, table, COPY_BEGINS)
            if self.random.random() < 0.6:
                self.write(source, table, "t")
        elif self.random.random() < 0.5:
            self.write(source, table, "c", key=self.random.randrange(4))
        else:
            del self.copied[source, table]
            self.write(source, table, COPY_ENDS)

    # What happens to bronze.

    def commit_bronze(self, records):
        self.ids += 1
        self.bronze.append((f"id-{self.ids}", list(records)))

    def load_bronze(self):
        upto = self.random.randint(self.taken, len(self.log))
        if upto > self.taken or self.random.random() < 0.1:
            self.commit_bronze(self.log[self.taken : upto])
            self.taken = upto

    def make_bronze_again(self):
        self.bronze = []
        size = max(1, self.taken // self.random.randint(1, 4))
        for start in range(0, self.taken, size):
            self.commit_bronze(self.log[start : min(start + size, self.taken)])

    def put_back_older_bronze(self):
        # What it lacks is known by its end.
        if not self.bronze or self.shuffled:
            return
        self.bronze = self.bronze[: self.random.randint(1, len(self.bronze))]
        self.taken = sum(len(records) for _, records in self.bronze)

    def rows(self, since, upto, readable):
        if since is None or not readable:
            return [r for _, records in self.bronze[: upto + 1] for r in records]
        back = dict(since.back)
        values = [
            r for _, records in self.bronze[since.version + 1 : upto + 1] for r in records if r.source not in back
        ]
        for source, after in back.items():
            values += [r for _, records in self.bronze[after + 1 : upto + 1] for r in records if r.source == source]
        return values

    # What loads do.

    def known(self):
        state = self.published
        if state.bronze_version is None:
            return state
        there = self.bronze[state.bronze_version][0] if state.bronze_version < len(self.bronze) else None
        return state if there == state.bronze_commit else published.without_versions(state)

    def base(self, task):
        folder, known = self.folders.get(task.table), task.published
        if folder is None:
            return Base(exists=False, positions=known.positions)
        newest = len(folder.versions) - 1
        if known.version is not None and newest <= known.version:
            return Base(exists=True, positions=known.positions, version=newest, current=newest)
        return Base(exists=True, positions=folder.versions[newest][0], version=newest, current=newest)

    def apply(self, task, version, readable, *, build=False):
        """Return what table_load.apply, or build, returns; raise StoppedError, or Overtaken."""
        if held_back.has_nothing_yet(task) or table_task.is_only_truncated(task):
            return table_task.describe_unmade(task)
        base = self.base(task)
        if not build and any(p > task.high.get(s, "") for s, p in base.positions.items()):
            raise OvertakenError
        low = {} if build else base.positions
        current = base.current
        if build or table_task.ahead_of(task, low) or not base.exists:
            if not task.published.schemas and not task.records:
                raise StoppedError
            try:
                table_task.target_of(task)
            except NeedsOperator as error:
                raise StoppedError(offenders.find_misfits(task)) from error
            new = [
                r
                for r in self.rows(task.after, version, readable)
                if r.table == task.table
                and r.is_change
                and low.get(r.source, "") < r.position <= task.high.get(r.source, "")
            ]
            truncates = {r.source: r.position for r in sorted(new, key=lambda r: r.position) if r.kind == "t"}
            bad = [r for r in new if r.bad and r.position > truncates.get(r.source, "")]
            if bad and not self.cured:
                # Whichever a task of Spark meets first.
                offence = self.random.choice(bad)
                raise StoppedError({offence.source: (offence.position, "a bad value")})
            before = {} if build or not base.exists else self.folders[task.table].versions[-1][1]
            folder = self.folders.setdefault(task.table, Folder())
            folder.versions.append((dict(task.high), fold(before, new)))
            current = len(folder.versions) - 1
        return table_load._done(task, current)

    def apply_all(self, context, tasks, version, readable):
        """Return how each table is afterwards; raise OvertakenError for a load that dies after some."""
        self.random.shuffle(tasks)
        dies = self.random.random() < 0.15
        results = {}
        for task in tasks[: self.random.randint(0, len(tasks)) if dies else len(tasks)]:
            try:
                if self.random.random() < 0.05:
                    # Some fail once their rows are committed.
                    if self.random.random() < 0.5:
                        self.apply(task, version, readable)
                    results[task.table] = held_back.fail_table(self.lake, context, task, "no memory")
                else:
                    results[task.table] = self.apply_without_offenders(context, task, version, readable)
            except StoppedError:
                results[task.table] = held_back.stop_table(self.lake, context, task, "a bad value")
        if dies:
            raise OvertakenError
        return results

    def apply_without_offenders(self, context, task, version, readable):
        """Return what tables_load's function of this name does."""
        while True:
            try:
                return self.apply(task, version, readable)
            except StoppedError as error:
                rows = [r for r in self.rows(task.after, version, readable) if r.table == task.table and r.is_change]

                def find_last(source, low, end, rows=rows):
                    return max(
                        (r.position for r in rows if r.source == source and low < r.position < end), default=None
                    )

                task = offenders.leave_out(
                    task,
                    error.offences,
                    self.base(task).positions,
                    find_last,
                    settings=held_back.digest_settings(self.lake, "bank"),
                    rest=held_back.rest_after(context, task),
                )
                if task is None:
                    raise
                self.left_out += 1

    def load(self):
        if not self.bronze:
            return
        before = self.known()
        version = len(self.bronze) - 1
        known = before.bronze_version is not None
        if self.random.random() < 0.3 and (known or not before.load):
            # A part of a backlog.
            version = self.random.randint(before.bronze_done if known else 0, version)
        readable = self.random.random() < 0.85
        lagging = held_back.select_lagging(self.lake, before, {published.folder(name) for name in self.folders})
        since = None
        if before.bronze_done is not None and readable:
            ends = {
                r.source
                for r in self.rows(held_back.unpublished_since(before, ()), len(self.bronze) - 1, True)
                if r.last
            }
            back = (ends & before.unfinished.keys()) | before.held_back.keys()
            since = held_back.unpublished_since(before, back)
        raw = self.rows(since, version, True)
        applied = before.partitions
        if since is None:
            applied = {source: applied[source] for source in before.held_back if source in applied}
            # Of all of bronze it is not known what came late.
            self.noticed = self.noticed and all(r.source in before.held_back for r in self.overtaken)
        unread = self.find_unread(before, raw, version)
        new = profile(raw, before.positions, applied=applied, held_back=unread)
        context = table_task.LoadContext(
            stream="bank",
            bronze="",
            version=version,
            load=before.load + 1,
            rest=held_back.unpublished_after(before),
            first=not before.load,
        )

        def profiled(known, own):
            rows = [r for r in self.rows(own, version, readable) if r.table == known.table]
            return profile(rows, known.positions, new.high)

        lacking = self.lacking(before)
        tasks = list(tables_load.tasks(self.lake, context, before, lagging, new, since, profiled, lacking).values())
        try:
            results = self.apply_all(context, tasks, version, readable)
        except OvertakenError:
            return
        left = held_back.unfinished_after(before, since, new)
        after = tables_load.published_after(
            before, new, results, (None, None) if lacking else (version, self.bronze[version][0]), left, None
        )
        for source in after.held_back:
            assert after.positions.get(source) == before.positions.get(source)
        if tables_load.is_worth_publishing(before, after):
            self.publish(after)

    def find_unread(self, before, raw, version):
        """Return the sources that describe a table in a topic of which nothing came, as load.find_unread does."""
        came = {r.source for r in self.rows(None, version, True) if r.table == HIDDEN and r.is_change}
        return {
            r.source: "unseen"
            for r in raw
            if r.unseen and r.source not in came and r.position > before.positions.get(r.source, "")
        }

    def replay(self):
        """Make every table again, as replay.of_silver does."""
        before = self.known()
        if not before.load or not self.bronze or self.lacking(before):
            return
        version = len(self.bronze) - 1
        rows = self.rows(None, version, True)
        new = profile(rows, {}, before.positions)
        late = {s for s, why in before.held_back.items() if why == batch_profile.DISORDERED} | new.disordered.keys()
        accepted = {s: {} for s in late}
        for r in sorted(rows, key=lambda r: r.position):
            if r.source in late and r.is_change:
                accepted[r.source][str(r.partition)] = r.position
        tables = dict(before.tables)
        nothing = Published(stream="bank")
        failed = False
        for name in sorted(new.tables()):
            task = held_back.hold_back_copies(table_task.task_of(self.lake, nothing, name, new, after=None))
            table = before.tables.get(name, Table(table=name))
            if held_back.has_nothing_yet(task) or table_task.is_only_truncated(task):
                continue
            task = held_back.keep(replace(task, published=replace(table, schemas={}, positions={})))
            try:
                tables[name] = self.apply(task, version, readable=True, build=True)
            except StoppedError:
                tables[name] = replace(table, changes=0, problem="a bad value")
                accepted = {s: of for s, of in accepted.items() if s not in table.schemas}
                failed = failed or name == TABLES[0]
        self.publish(replace(before, load=before.load + 1, tables=tables, partitions=before.partitions | accepted))
        if self.came and set(self.overtaken) <= set(rows) and not failed:
            self.overtaken = []

    def lacking(self, before):
        if before.bronze_version is not None or not before.positions:
            return set()
        rows = [r for r in self.rows(None, len(self.bronze), True) if r.kind != "schema"]
        ends = {r.source: r.position for r in sorted(rows, key=lambda r: r.position)}
        return published.ends_ahead(ends, before)

    def publish(self, after):
        self.published = replace(after, data=after.load)
        self.shown = {
            name: self.folders[name].versions[table.version][1]
            for name, table in after.tables.items()
            # A folder that was lost can be read no more.
            if table.version is not None and name in self.folders and table.version < len(self.folders[name].versions)
        }

    def rebuild(self):
        before = self.known()
        names = [name for name, table in before.tables.items() if table.version is not None]
        if not names or not self.bronze:
            return
        name, version = self.random.choice(names), len(self.bronze) - 1
        if self.lacking(before):
            return
        own = replace(before, tables=before.tables | {name: held_back.release(before.tables[name])})
        held = held_back.hold_back_copies(
            table_task.task_of(self.lake, own, name, batch_profile.nothing(before.positions), after=None)
        )
        whole = profile([r for r in self.rows(None, version, True) if r.table == name], {}, held.high)
        task = replace(
            held, published=replace(held.published, schemas={}, warnings={}), seen=whole.seen, records=whole.records
        )
        if any(p > held.high.get(s, "") for s, p in self.base(held).positions.items()) or name not in self.folders:
            return
        try:
            done = self.apply(task, version, readable=True, build=True)
        except StoppedError:
            return
        self.publish(replace(before, load=before.load + 1, tables=before.tables | {name: done}))

    def lose_folder(self):
        if self.folders:
            del self.folders[self.random.choice(sorted(self.folders))]

    def cure(self):
        """Let silver hold every value, as a setting does."""
        self.cured = True
        self.stream.tables = {"cured": True}

    def step(self):
        steps = [
            *[self.change] * 12,
            *[self.copy] * 8,
            *[self.load_bronze] * 6,
            *[self.load] * 8,
            *[self.move, self.arrive] * 3,
            self.rekey,
            *([self.hide, self.replay] if self.random.random() < 0.4 else []),
            self.rebuild,
            self.make_bronze_again,
            self.put_back_older_bronze,
            *([self.lose_folder] if self.random.random() < 0.3 else []),
            *([self.cure] if self.random.random() < 0.1 else []),
        ]
        self.random.choice(steps)()

    # What has to hold.

    def check(self):
        for name, table in self.published.tables.items():
            if name not in self.shown:
                continue
            records = [r for r in self.log if r.table == name and r.position <= table.positions.get(r.source, "")]
            without = [r for r in records if r not in self.overtaken]
            # What came too late is there once a replay, or a table that is made again, has read it; until then nothing goes on.
            assert self.shown[name] in (fold({}, records), fold({}, without)), (name, table.problem, table.copying)
            if self.shown[name] != fold({}, records) and self.noticed and set(self.overtaken) <= set(self.loaded()):
                assert self.overtaken[0].source in self.published.held_back
            for source, position in table.positions.items():
                assert position <= self.published.positions[source]

    def loaded(self):
        return [r for _, records in self.bronze[: (self.published.bronze_version or -1) + 1] for r in records]

    def finish(self):
        """Let everything come and go on; then nothing is left behind but what is still being copied."""
        self.cure()
        self.arrive()
        if self.unseen:
            self.hide()
        self.odd = set()
        for source in SOURCES:
            for table in TABLES:
                if self.rekeyed and self.copied.pop((source, table), False):
                    self.write(source, table, COPY_ENDS)
                self.write(source, table, "c")
        self.commit_bronze(self.log[self.taken :])
        self.taken = len(self.log)
        self.random.random = lambda: 0.999
        for _ in range(4):
            self.load()
            self.check()
        self.replay()
        assert not self.overtaken
        self.commit_bronze([])
        for _ in range(2):
            self.load()
            self.check()
        assert not self.published.held_back
        assert HIDDEN in self.shown or not any(r.table == HIDDEN for r in self.log)
        ends = {r.source: r.position for r in self.log if r.last}
        assert self.published.positions == ends
        for table in self.published.tables.values():
            assert (table.problem, table.held_back) == (None, {})
            assert table.positions == held_back.waiting_positions(table, ends)


@pytest.mark.parametrize("part", range(4))
def test_after_any_history_every_table_equals_a_fold_of_bronze(part):
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
                world.check()
            world.finish()
        except Exception as error:
            raise AssertionError(f"history {seed}") from error
