"""Bronze's note of its offsets: what a commit carries, and what is read of it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NeedsOperator
from spark_jobs.bronze import sink
from spark_jobs.errors import Conflict
from spark_jobs.state import offsets
from spark_jobs.state.log_files import LocalFiles
from spark_jobs.state.offsets import Base, Held, Progress
from spark_jobs.state.published_rows import Published

DAY = 24 * 60 * 60
STEPS = ("commit", "commit", "restart", "wait", "back", "maintain", "rival", "less", "rewrite")


def test_note_reads_back_what_it_was_written_from():
    topics = {"bank": Held({0: 12, 3: 4}, "x"), "bank.public.t": Held({0: 1}, "y")}
    progress = Progress(topics=topics, positions={"jakarta/bank": "p"}, rewritten=7)
    assert offsets.parse(json.loads(offsets.note("bank", progress))) == progress


def test_note_of_an_earlier_release_is_of_one_topic():
    old = {"topic": "bank", "topic_id": "x", "offsets": {"0": 12}, "query": "q", "batch": 7}
    assert offsets.parse(old) == Progress(topics={"bank": Held({0: 12}, "x")})


class Log:
    """A table's log in a folder, into which commits of notes are written as Delta does it: one for each number."""

    def __init__(self, folder, clock):
        self.folder, self.clock = folder, clock
        (folder / "_delta_log").mkdir(parents=True)
        self.sizes = []

    def file(self, version):
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def write(self, text="", operation="WRITE"):
        """Commit a note, or what carries none."""
        info = {"timestamp": 1, "operation": operation} | ({"userMetadata": text} if text else {})
        self.file(len(self.sizes)).write_text(json.dumps({"commitInfo": info}) + "\n")
        self.sizes.append(len(text))

    def commit(self, progress, after):
        """Commit progress as a sink does; return it as it is then. One that follows an older note is refused."""
        newest = self.read()
        if newest is not None and newest.number != progress.number:
            raise Conflict("overtaken")

        class Writer:
            def __init__(self):
                self.options_given = {}

            def option(self, name, value):
                self.options_given[name] = value
                return self

            def save(writer, _):  # noqa: N805 - the log is self.
                self.write(writer.options_given["userMetadata"])

        writer = Writer()
        for name in ("format", "mode", "options"):
            setattr(writer, name, lambda *_, **__: writer)
        spark = SimpleNamespace()
        return sink.commit(spark, str(self.folder), "bank", SimpleNamespace(write=writer), progress, after)[0]

    def read(self):
        """Return what a process that starts now reads."""
        return offsets.read_local(str(self.folder), "bank", LocalFiles())


@pytest.fixture
def clock(monkeypatch):
    result = SimpleNamespace(now=1e9)
    monkeypatch.setattr(offsets, "time", lambda: result.now)
    monkeypatch.setattr(sink, "time", lambda: result.now)
    monkeypatch.setattr(offsets.delta_log.storage, "is_local", lambda *_: True)
    return result


def topics(count, offset=1):
    return {
        f"bank.public.table{number}": Held(dict.fromkeys(range(3), offset), f"id{number}") for number in range(count)
    }


def test_l49_of_ten_thousand_topics_a_commit_notes_those_that_changed(tmp_path, clock):
    """L49: each commit noted all of them, 1.4 MB: 60 GB a day at a commit every two seconds."""
    # given a stream of 10,000 tables and 3 sources
    log = Log(tmp_path / "bronze", clock)
    progress = log.commit(Progress(), Progress(topics=topics(10_000)))
    # when 20 of them change in each of 100 commits
    for number in range(100):
        changed = {f"bank.public.table{i}": Held({0: 2 + number}, f"id{i}") for i in range(20)}
        progress = log.commit(progress, replace(progress, topics=progress.topics | changed))
    # then all but the first one note these alone
    assert log.sizes[0] > 500_000
    assert max(log.sizes[1:]) < 10_000
    # and a new process knows all of them
    assert log.read() == progress
    assert log.read().base == progress.base
    assert len(log.read().topics) == 10_000


@given(data=st.data())
def test_l49_a_process_goes_on_from_what_the_last_one_committed(tmp_path_factory, data):
    """Any history of commits, restarts, clocks, maintenance and rivals: what is read is what was committed last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets, "_FEW_TOPICS", 1)
        result = SimpleNamespace(now=1e9)
        patch.setattr(offsets, "time", lambda: result.now)
        patch.setattr(sink, "time", lambda: result.now)
        patch.setattr(offsets.delta_log.storage, "is_local", lambda *_: True)
        log = Log(tmp_path_factory.mktemp("log") / "bronze", result)
        last = progress = log.commit(Progress(), Progress(topics=topics(6), positions={"j/b": "0"}))
        rival = last
        for number in range(data.draw(st.integers(1, 12))):
            step = data.draw(
                st.sampled_from(["commit", "commit", "restart", "wait", "back", "maintain", "rival", "less", "rewrite"])
            )
            if step == "commit":
                names = data.draw(st.sets(st.integers(0, 8), max_size=3))
                changed = {f"bank.public.table{i}": Held({1: number + 2}, f"id{i}") for i in names}
                after = replace(progress, topics=progress.topics | changed, positions={"j/b": str(number)})
                last = progress = log.commit(progress, after)
            elif step == "restart":
                progress = log.read()
            elif step == "wait":
                result.now += data.draw(st.sampled_from([60, DAY / 5, DAY]))
            elif step == "back":
                result.now -= DAY
            elif step == "maintain":
                log.write(operation="OPTIMIZE")
            elif step == "less":
                fewer = dict(list(progress.topics.items())[1:]) or progress.topics
                last = progress = log.commit(progress, replace(progress, topics=fewer))
            elif step == "rewrite":
                last = progress = log.commit(progress, replace(progress, rewritten=number))
            elif rival.number != last.number:
                with pytest.raises(Conflict):
                    log.commit(rival, replace(rival, topics=topics(3, 99)))
            assert log.read() == last
            assert log.read().number == last.number


def test_l49_a_note_is_whole_again_before_delta_may_forget_what_it_refers_to(tmp_path, clock):
    log = Log(tmp_path / "bronze", clock)
    progress = log.commit(Progress(), Progress(topics=topics(200)))
    progress = log.commit(progress, progress)
    clock.now += DAY
    progress = log.commit(progress, progress)
    assert [size > 1_000 for size in log.sizes] == [True, False, True]
    # what refers to a whole note that is gone, or is another one, is not known without a look at the rows
    progress = log.commit(progress, progress)
    kept = log.file(2).read_text()
    for text in (kept.replace(progress.base.commit, "another"), None):
        log.file(2).write_text(text) if text else log.file(2).unlink()
        assert log.read() is None
    log.file(2).write_text(kept)
    assert log.read() == progress


def test_l49_an_earlier_release_refuses_a_note_of_changes():
    base = Base(1, "x", 0, topics(200))
    note = json.loads(offsets.note("bank", Progress(topics=topics(200)), base=base))
    assert not note.keys() & {"topics", "topic", "offsets"}
    with pytest.raises(KeyError):
        offsets.parse(note)


class Table:
    """What Spark reads of the bronze table in a folder: which columns it has."""

    columns = ("topic",)

    @property
    def read(self):
        return self

    def format(self, _):
        return self

    def load(self, _):
        return self


def refer_to_a_base_that_is_gone(log):
    """Write notes of 200 topics, of which the last one lacks what it refers to; return what bronze holds."""
    first = log.commit(Progress(), Progress(topics=topics(200)))
    log.commit(first, replace(first, topics=topics(200), base=None))
    whole = log.read()
    held = log.commit(whole, replace(whole, topics=whole.topics | {"bank.public.table7": Held({0: 9}, "id7")}))
    other = log.file(1).read_text().replace(whole.base.commit, "0" * 32)
    log.file(1).write_text(other)
    return held


@pytest.fixture
def rows(monkeypatch):
    """Return what rows of bronze show: offsets, and up to where rows were removed."""
    shown = SimpleNamespace(topics={}, removed={})
    monkeypatch.setattr(offsets.delta_log, "is_table", lambda *_: True)
    monkeypatch.setattr(offsets.delta_log, "version", lambda *_: 2)
    monkeypatch.setattr(offsets, "_of_rows", lambda _: shown.topics)
    monkeypatch.setattr(offsets.published, "latest", lambda *_: Published(stream="bank", bronze_removed=shown.removed))
    return shown


def test_where_a_base_is_gone_topics_keep_their_ids(tmp_path, clock, rows):
    log = Log(tmp_path / "bronze", clock)
    held = refer_to_a_base_that_is_gone(log)
    rows.topics = {name: Held(each.offsets) for name, each in topics(200).items()}

    assert offsets.of_table(Table(), None, str(log.folder), "bank", ["topic"]) == held


def test_where_a_base_is_gone_rows_decide_nothing_after_some_were_removed(tmp_path, clock, rows):
    log = Log(tmp_path / "bronze", clock)
    refer_to_a_base_that_is_gone(log)
    rows.topics, rows.removed = {name: Held(each.offsets) for name, each in topics(100).items()}, {"a/b": "0"}

    with pytest.raises(NeedsOperator, match="bronze_keep_days"):
        offsets.of_table(Table(), None, str(log.folder), "bank", ["topic"])
    # but for a replay, which reads again what Kafka has
    assert len(offsets.of_table(Table(), None, str(log.folder), "bank", ["topic"], by_rows=True).topics) == 100
