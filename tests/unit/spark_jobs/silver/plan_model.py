"""Random histories of a stream: after each load, every published table equals a fold of bronze up to its positions.

What decides is the real code (table_task.py, held_back.py, published.py); bronze, rows and commits are
lists here. Histories have copies that end, are cancelled or begin again, tables that stop, fail and go on, loads that die between
any two commits, rebuilds, lost folders, and bronze that is made again or put back from an older copy.
"""

import random
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

from headrace.errors import NeedsOperator, Retryable
from headrace.schema import COPY_BEGINS, COPY_ENDS
from spark_jobs.bronze.increment import Bronze
from spark_jobs.errors import Misfit
from spark_jobs.silver import batch_profile, commit, held_back, table_load, table_task, tables_load
from spark_jobs.silver.commit import Base
from spark_jobs.state import published
from spark_jobs.state.published_rows import Published
from tests.unit.spark_jobs.silver.plan_records import Record, fold, profile

SOURCES = ("jakarta/bank", "london/bank")
TABLES = ("public.a", "public.b", "public.c")


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


class StoppedError(Misfit):
    """A table cannot go on."""

    def __init__(self):
        super().__init__("a bad value", hint="")


class OvertakenError(Retryable):
    """A table is beyond the load, or a load died."""

    def __init__(self):
        super().__init__("overtaken", hint="")


@dataclass
class Folder:
    """A silver table: of each version its positions and rows, and the load that wrote it."""

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
        #: The folders that what is published is of.
        self.genuine = {}
        self.published = Published(stream="bank")
        self.shown = {}
        self.cured = False
        self.held = 0

    # What sources do.

    def write(self, source, table, kind, *, key=0, last=True, bad=False):
        position = f"{self.next:08d}"
        self.next += 1
        if (source, table) not in self.described:
            self.described.add((source, table))
            self.log.append(Record(source, table, position, "schema"))
        self.log.append(Record(source, table, position, kind, key, last, bad))
        self.open[source] = not last

    def change(self):
        source = self.random.choice(SOURCES)
        table = self.random.choice(TABLES)
        bad = self.random.random() < 0.1 and not self.cured
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
        if not self.bronze:
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

    def move_away(self):
        """Do what an operator does with a folder that was lost, and begun again by a load that did not publish it."""
        for name, folder in list(self.folders.items()):
            table = self.published.tables.get(name)
            if table is None or table.version is None or folder is self.genuine.get(name):
                continue
            # One that is as long as the published one is not seen to be another one but by the next load.
            if len(folder.versions) <= table.version or folder.versions[0][2] <= self.published.load:
                del self.folders[name]

    def read_published(self):
        self.move_away()
        state = self.published
        if state.bronze_version is None:
            return state
        there = self.bronze[state.bronze_version][0] if state.bronze_version < len(self.bronze) else None
        return state if there == state.bronze_commit else published.without_versions(state)

    def base(self, task):
        folder, known = self.folders.get(task.table), task.published
        names = {"path": task.path, "name": task.table, "stream": "s", "kind": "silver"}
        if folder is None:
            return Base(**names, exists=False, positions=known.positions)
        newest = len(folder.versions) - 1
        positions, _, load = folder.versions[newest]
        if known.version is not None and newest == known.version and load <= self.published.load:
            positions = known.positions
        return Base(**names, exists=True, positions=positions, version=newest, current=newest)

    def apply(self, task, version, readable, *, build=False):
        """Return what table_load.apply, or build, returns; raise StoppedError, or Overtaken."""
        if held_back.has_nothing_yet(task) or table_task.is_only_truncated(task):
            return table_task.describe_unmade(task)
        base = self.base(task)
        if not build:
            commit.check_order(base, task.high, task.published.held_back.keys())
        # As tables_load._attempt has it.
        build = build or not base.has_all_of(task.published)
        low = {} if build else base.positions
        task = replace(task, after=None) if build else task
        current = base.current
        if build or table_task.ahead_of(task, low) or not base.exists:
            if not task.published.schemas and not task.records:
                raise StoppedError
            new = [
                r
                for r in self.rows(task.after, version, readable)
                if r.table == task.table
                and r.is_change
                and low.get(r.source, "") < r.position <= task.high.get(r.source, "")
            ]
            truncates = {r.source: r.position for r in sorted(new, key=lambda r: r.position) if r.kind == "t"}
            if not self.cured and any(r.bad and r.position > truncates.get(r.source, "") for r in new):
                raise StoppedError
            before = {} if build or not base.exists else self.folders[task.table].versions[-1][1]
            folder = self.folders.setdefault(task.table, Folder())
            folder.versions.append((dict(task.high), fold(before, new), self.published.load + 1))
            current = len(folder.versions) - 1
        return table_load._done(task, current)

    def attempt(self, version, readable, task, *, dies):
        """Return what apply returns; a load that dies may do so here, when some sources are in."""
        table = self.apply(task, version, readable)
        if dies and self.random.random() < 0.2:
            raise OvertakenError
        return table

    def reached(self, task):
        folder = self.folders.get(task.table)
        newest = folder.versions[-1][0] if folder else {}
        shown = task.published.positions
        return shown | {source: max(position, shown.get(source, "")) for source, position in newest.items()}

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
                    attempt = partial(self.attempt, version, readable, dies=dies)
                    reached = partial(self.reached, task)
                    results[task.table] = table_load.apply_without_misfits(self.lake, context, task, attempt, reached)
                    self.held += bool(results[task.table].held_back)
            except NeedsOperator:
                results[task.table] = held_back.stop_table(self.lake, context, task, "a bad value")
        if dies:
            raise OvertakenError
        return results

    def load(self):
        if not self.bronze:
            return
        before = self.read_published()
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
            since = held_back.unpublished_since(before, ends & before.unfinished.keys())
        new = profile(self.rows(since, version, True), before.positions)
        context = table_task.LoadContext(
            stream="bank",
            bronze=Bronze("", version),
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
        except Retryable:
            return
        left = held_back.unfinished_after(before, since, new)
        after = tables_load.published_after(
            before, new, results, (None, None) if lacking else (version, self.bronze[version][0]), left, None
        )
        if tables_load.is_worth_publishing(before, after):
            self.publish(
                after,
                [
                    name
                    for name, table in results.items()
                    if table.version is not None and not table.failures and (table.problem is None or table.held_back)
                ],
            )

    def lacking(self, before):
        if before.bronze_version is not None or not before.positions:
            return set()
        rows = [r for r in self.rows(None, len(self.bronze), True) if r.kind != "schema"]
        ends = {r.source: r.position for r in sorted(rows, key=lambda r: r.position)}
        return published.ends_ahead(ends, before)

    def publish(self, after, written):
        self.genuine |= {name: self.folders[name] for name in written if name in self.folders}
        self.published = replace(after, data=after.load)
        self.shown = {
            name: self.folders[name].versions[table.version][1]
            for name, table in after.tables.items()
            # A folder that was lost can be read no more.
            if table.version is not None and self.folders.get(name) is self.genuine[name]
        }

    def rebuild(self):
        before = self.read_published()
        names = [name for name, table in before.tables.items() if table.version is not None]
        if not names or not self.bronze:
            return
        name, version = self.random.choice(names), len(self.bronze) - 1
        if self.lacking(before):
            return
        held = held_back.hold_back(
            table_task.task_of(self.lake, before, name, batch_profile.nothing(before.positions), after=None)
        )
        whole = profile([r for r in self.rows(None, version, True) if r.table == name], {}, held.high)
        task = replace(
            held, published=replace(held.published, schemas={}, warnings={}), seen=whole.seen, records=whole.records
        )
        try:
            if any(p > held.high.get(s, "") for s, p in self.base(held).positions.items()) or name not in self.folders:
                return
            done = self.apply(task, version, readable=True, build=True)
        except (NeedsOperator, Retryable):
            return
        self.publish(replace(before, load=before.load + 1, tables=before.tables | {name: done}), [name])

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
            assert self.shown[name] == fold({}, records), (name, table.problem, table.copying)
            for source, position in table.positions.items():
                assert position <= self.published.positions[source]
            # Other sources went on.
            if table.held_back:
                assert held_back.waits_for_sources(table, self.published.positions)

    def finish(self):
        """Let everything come and go on; then nothing is left behind but what is still being copied."""
        self.cure()
        for source in SOURCES:
            self.write(source, TABLES[0], "c")
        self.commit_bronze(self.log[self.taken :])
        self.taken = len(self.log)
        self.random.random = lambda: 0.999
        for _ in range(4):
            self.load()
            self.check()
        ends = {r.source: r.position for r in self.log if r.last}
        assert self.published.positions == ends
        for table in self.published.tables.values():
            assert table.problem is None
            assert table.positions == held_back.waiting_positions(table, ends)
