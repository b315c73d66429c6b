"""The verdict of each table of a source, and of a whole run, with both sides replaced by stubs."""

import json
from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import ConfigurationError, NeedsOperator, NotConnected, Retryable
from headrace.verify import canonical
from headrace.verify.canonical import SourceType
from headrace.verify.comparison import Digest, Place, SourceTable
from spark_jobs.verify import command
from spark_jobs.verify import verify as verification
from spark_jobs.verify.compare import Comparison, Range
from spark_jobs.verify.lake import Reached
from spark_jobs.verify.report import TableReport
from spark_jobs.verify.verify import Sample, verify

SOURCE = "jakarta/bank"
DIFFERS = Range(column="id", first=1, last=2, rows_source=1, rows_lake=0)


def table(name, *columns, **more):
    kinds = dict.fromkeys(columns or ("id",), SourceType(name="int8"))
    return SourceTable(schema="public", name=name, columns=kinds, key=(next(iter(kinds)),), **more)


class SourceStub:
    """A database whose tables have ten million rows."""

    place, sequences, forms = Place(5, "LSN 0/5"), frozenset(), canonical

    def __init__(self, *tables):
        self._tables = list(tables)

    def tables(self):
        return self._tables

    def side(self, table, *_, **__):
        assert table.captured
        return self

    def about(self):
        return 10_000_000

    def count(self):
        return 10_000_000

    def bounds(self):
        return (1, 10_000_000)


class FrameStub:
    """Rows of silver."""

    schema = T.StructType([T.StructField("id", T.LongType())])

    def count(self):
        return 3


class LakeStub:
    """Silver tables, which reach the source's place at the second attempt."""

    def __init__(self, *names, copied=(), stopped=(), dropped=()):
        self._names, self._copied, self._stopped = names, copied, stopped
        self._dropped = dropped
        self.attempts = 0

    def names(self, _source):
        return {f"public.{name}" for name in self._names}

    def dropped(self):
        return {f"public.{name}" for name in self._dropped}

    def frame(self, source, name):
        return FrameStub() if name in self.names(source) else None

    def treated(self, _source, _name):
        return {}

    def problem(self, source, name):
        return "its key was changed" if name.removeprefix("public.") in self._stopped else None

    def copying(self, source, name):
        return f"its copy from {source} is not complete" if name.removeprefix("public.") in self._copied else None

    def advance(self, *_, **__):
        self.attempts += 1
        return Reached(newest="a/b/c", bound="a/b", proven=self.attempts > 1)


class Quiet:
    """Shows nothing."""

    def show(self, *_):
        pass

    table = show


class Cells(set):
    """Cells that differ, and what was compared."""

    seen: list


@pytest.fixture
def cells(monkeypatch):
    """Return the set of cells that differ, to be filled; it has what each comparison compared."""
    differing = Cells()
    differing.seen = []

    def compare(_source, _lake, _columns, _key, grid, wanted):
        differing.seen.append((grid, wanted))
        result = differing & set(range(grid.cells) if wanted is None else wanted)
        return Comparison(source=Digest(), lake=Digest(), ranges=(DIFFERS,) * bool(result))

    monkeypatch.setattr(verification, "compare", compare)
    monkeypatch.setattr(verification, "SilverSide", lambda *_: None)
    return differing


def verdicts(database, lake):
    return {each.table.removeprefix("public."): each for each in verify(SOURCE, database, lake)}


def test_tables_that_are_not_captured_are_said_to_be_so_and_no_row_of_them_is_read(cells):
    """V2: each of them with rows was "not equal: missing in the lake"."""
    database = SourceStub(
        table("accounts"), table("audit", captured=False), table("former", captured=False), table("new")
    )
    verdict = verdicts(database, LakeStub("accounts", "former"))

    assert {name: each.verdict for name, each in verdict.items()} == {
        "accounts": "equal",
        "audit": "not captured",
        "former": "not compared",
        "new": "not equal",
    }
    assert "not captured" in verdict["former"].reasons[0]
    assert verdict["new"].reasons == ["the table is missing in the lake"]


def test_a_key_column_that_silver_lacks_is_a_table_that_cannot_be_compared(cells):
    """V6: a KeyError ended the run, without a report for any table."""
    verdict = verdicts(SourceStub(table("accounts", "account_id", "id"), table("rest")), LakeStub("accounts", "rest"))

    assert {name: each.verdict for name, each in verdict.items()} == {"accounts": "not compared", "rest": "equal"}
    assert "the lake has no column account_id" in verdict["accounts"].reasons[0]


def test_tables_under_copy_and_dropped_tables_are_not_compared(cells):
    """V8: they were "not equal"."""
    cells.add(0)
    database = SourceStub(table("copied"), table("stopped"), table("unmade"))
    verdict = verdicts(
        database, LakeStub("copied", "stopped", "dropped", copied=["copied", "unmade"], stopped=["stopped"])
    )

    assert {name: each.verdict for name, each in verdict.items()} == {
        "copied": "not compared",
        "unmade": "not compared",
        "dropped": "not compared",
        "stopped": "not equal",
    }
    assert verdict["copied"].reasons == ["its copy from jakarta/bank is not complete"]
    assert "dropped or renamed" in verdict["dropped"].reasons[0]
    assert verdict["stopped"].reasons == ["the load stopped at this table: its key was changed"]


def test_a_table_that_was_dropped_from_the_lake_is_not_asked_for_at_its_source(cells):
    verdict = verdicts(SourceStub(table("accounts"), table("audit")), LakeStub("accounts", dropped=["audit"]))

    assert {name: each.verdict for name, each in verdict.items()} == {"accounts": "equal"}


def run(database, lake, sample=None):
    reports = []
    command._verify(SOURCE, database, lake, (), sample, 120, Quiet(), reports)
    return reports


def test_a_sample_has_the_same_ranges_when_a_table_is_compared_again(cells):
    """V4: the second pass drew others, and a difference became "equal"."""
    cells.update(range(100))
    (report,) = run(SourceStub(table("accounts")), LakeStub("accounts"), Sample(percent=5))

    first, second = cells.seen
    assert first == second
    assert len(first[1]) == 5
    assert report.verdict == "not equal"


def fail_at_c(monkeypatch, error):
    """Have the source fail at its table c."""

    def lost():
        raise error

    monkeypatch.setattr(SourceStub, "side", lambda self, table, *_, **__: lost() if table.name == "c" else self)
    return SourceStub(*map(table, "abcd"))


def test_verdicts_that_are_there_outlive_a_source_that_is_lost(cells, monkeypatch):
    """V3: a lost connection ended the run, and nothing of it was printed or recorded."""
    database, reports = fail_at_c(monkeypatch, NotConnected("the connection was lost")), []
    with pytest.raises(NotConnected, match="was lost"):
        command._verify(SOURCE, database, LakeStub(*"abcd"), (), None, 120, Quiet(), reports)
    assert [(each.table, each.verdict) for each in reports] == [("public.a", "equal"), ("public.b", "equal")]

    # What differs before all changes have come is no verdict.
    cells.add(0)
    reports = []
    with pytest.raises(NotConnected, match="was lost"):
        command._verify(SOURCE, database, LakeStub(*"abcd"), (), None, 120, Quiet(), reports)
    assert [(each.table, each.verdict) for each in reports] == [
        ("public.a", "not compared"),
        ("public.b", "not compared"),
    ]
    assert "was lost" in reports[0].reasons[0]


def test_an_error_that_nobody_expected_at_one_table_is_that_tables_verdict(cells, monkeypatch):
    """It ended the source's verification: no later table was compared."""
    database, reports = fail_at_c(monkeypatch, TypeError("a row's value")), []
    command._verify(SOURCE, database, LakeStub(*"abcd"), (), None, 120, Quiet(), reports)

    verdicts = {each.table.removeprefix("public."): each.verdict for each in reports}
    assert verdicts == {"a": "equal", "b": "equal", "c": "not compared", "d": "equal"}
    (reason,) = reports[2].reasons
    assert "ended with TypeError at tests/unit/" in reason
    assert "a row's value" not in reason


class SomeSources:
    """Sources of which some fail."""

    def __init__(self, **errors):
        self._errors = errors

    def connect(self, name, *, placed):
        if name in self._errors:
            raise self._errors[name]
        return nullcontext()

    def close(self):
        pass


def test_sources_that_cannot_be_reached_do_not_keep_others_from_being_verified():
    """V3: one silent edge ended the run for all sources."""
    lost, wrong = NotConnected("no answer"), ConfigurationError("no password")
    assert command._connect_all(SomeSources(b=lost), ["a", "b", "c"]) == {"b": lost}
    with pytest.raises(NotConnected):
        command._connect_all(SomeSources(a=lost, b=lost), ["a", "b"])
    with pytest.raises(ConfigurationError):
        command._connect_all(SomeSources(b=wrong), ["a", "b"])


def test_what_nobody_expected_of_one_source_is_its_verdict_alone(monkeypatch, tmp_path, caplog):
    """V3: an error of another class, or a table of verdicts that could not be written, ended the others."""
    (tmp_path / "lake.toml").write_text(
        '[lake]\nroot = "x"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.bank]\nsources = ["a/one", "a/two", "b/down"]\n'
    )

    def verified(name, _database, _silver, _tables, _sample, _wait, _shown, reports):
        reports.append(TableReport(source=name, table="public.a", verdict="equal"))
        if name == "a/one":
            raise TypeError("a row's value")

    def broken(*_):
        raise RuntimeError("a row's value")

    reached = SomeSources(**{"b/down": KeyError("a row's value")})
    monkeypatch.setattr("spark_jobs.verify.tables.Sources", lambda *_: reached)
    monkeypatch.setattr("spark_jobs.session.session", lambda *_, **__: None)
    monkeypatch.setattr("spark_jobs.verify.lake.LakeAt", lambda *_: reached)
    monkeypatch.setattr("spark_jobs.verify.report.delta_log.is_table", broken)
    monkeypatch.setattr(command, "_verify", verified)
    done = CliRunner().invoke(command.verify, ["--config", str(tmp_path / "lake.toml"), "--json"])
    found = json.loads(done.stdout)
    assert [(each["source"], each["verdict"]) for each in found["tables"]] == [("a/one", "equal"), ("a/two", "equal")]
    assert [each["source"] for each in found["failed"]] == ["b/down", "a/one"]
    assert "ended with TypeError at tests/unit/" in found["failed"][1]["error"]
    assert (done.exit_code, caplog.text.count("its verdicts are not recorded: RuntimeError at tests/")) == (3, 2)
    assert "a row's value" not in done.output + caplog.text


def test_the_exit_code_tells_not_equal_from_not_all_compared():
    def of(*given):
        return [TableReport(source=SOURCE, table="public.a", verdict=each) for each in given]

    lost, busy, wrong = NotConnected("no answer"), Retryable("busy"), NeedsOperator("refused")
    for reports, failed, code in (
        (of("equal", "not captured"), {}, 0),
        (of("equal", "not compared"), {}, 3),
        (of("equal", "not compared", "not equal"), {"b": lost}, 1),
        (of("equal"), {"b": lost, "c": busy}, 5),
        (of("equal"), {"b": lost, "c": wrong}, 3),
        (of("not compared"), {"b": lost}, 3),
    ):
        assert command._exit_code(reports, failed) == code
