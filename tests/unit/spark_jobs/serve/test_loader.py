"""Loads of the server: what it cannot do, although a process of the sender's own may, is refused and is no failure."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.waiting import StopRequest
from headrace.warm_loads import Answer, Request
from spark_jobs.errors import SparkFailed
from spark_jobs.load import Report
from spark_jobs.serve import loader
from spark_jobs.serve.loader import Loader

FILE = '[lake]\nroot = "lake"\n[kafka]\nbootstrap = "nobody:1"\n[streams.bank]\nsources = ["a/bank"]\n'


class Spark:
    """A session, whose JVM answers as long as there is one."""

    def __init__(self):
        self.state, self.tags = "runs", set()
        self.sparkContext = self
        self._jsc = SimpleNamespace(sc=lambda: self)

    def isStopped(self):  # noqa: N802 - as Spark has it.
        self._ask()
        return self.state == "stopped"

    def setLocalProperty(self, *_):  # noqa: N802 - as above.
        self._ask()

    def addJobTag(self, tag):  # noqa: N802 - as above.
        self._ask()
        self.tags.add(tag)

    def clearJobTags(self):  # noqa: N802 - as above.
        self._ask()
        self.tags.clear()

    def _ask(self):
        if self.state == "killed":
            raise ConnectionRefusedError(111, "Connection refused")
        if self.state == "breaks":
            self.state = "killed"
            raise Py4JNetworkError("Error while sending")


@pytest.fixture
def lake(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text(FILE)
    return load_file(file, LakeFile)


@pytest.fixture
def spark():
    return Spark()


@pytest.fixture
def ask(lake, spark, monkeypatch):
    """Return a function that lets the server load, whose load ends as one of the tests' own does."""
    monkeypatch.setattr(loader.preflight, "look", lambda *_: SimpleNamespace(report=None, few=True))
    monkeypatch.setattr(Loader, "session", lambda *_, **__: spark)
    server = Loader(spark, lake)

    def load(run, stream="bank"):
        monkeypatch.setattr(loader.load, "run", run)
        return server.run("tag", Request(config=lake.path, stream=stream), lambda *_: None)

    return load


def fails(error, state="runs"):
    """Return a load that fails, after which Spark is in a state."""

    def run(spark, *_, **__):
        spark.state = state
        raise error

    return run


@pytest.mark.parametrize("state", ["stopped", "killed", "breaks"])
@pytest.mark.parametrize("error", [SparkFailed("a job was cancelled"), ConnectionRefusedError(111, "refused")])
def test_a_load_is_refused_once_spark_has_ended(ask, spark, state, error):
    answer = ask(fails(error, state))
    assert (answer.refused, answer.failure) == ("its Spark has ended", None)
    # and so is the next one, without a beginning
    begun = []
    answer = ask(lambda *_, **__: begun.append(True))
    assert (answer.refused, begun) == ("its Spark has ended", [])


def test_what_a_load_fails_with_while_spark_runs_is_its_end(ask, spark):
    with pytest.raises(NeedsOperator, match="a table stopped"):
        ask(fails(NeedsOperator("a table stopped")))
    with pytest.raises(ConfigurationError, match="other"):
        ask(fails(AssertionError), stream="other")
    assert spark.tags == set()


def test_what_this_environment_cannot_resolve_is_refused(ask, lake, tmp_path):
    # a secret, which is followed when it is needed
    answer = ask(fails(ConfigurationError("environment variable NEW is not set")))
    assert (answer.refused, answer.failure) == ("environment variable NEW is not set", None)
    # a text of the file, which is followed when that is read
    (tmp_path / "lake.toml").write_text(FILE.replace("nobody:1", "env:HEADRACE_TEST_NEW"))
    answer = ask(fails(AssertionError))
    assert "HEADRACE_TEST_NEW is not set" in answer.refused


def test_a_load_that_goes_on_can_be_cancelled_after_each_of_its_reports(lake, spark, monkeypatch):
    """What it did is recorded by jobs that are not cancelled, and the next ones were not either."""
    reports, tags = [], []

    def load(own, *_, every, on_report, **__):
        for number in range(2):
            own.clearJobTags()
            on_report(Report(lag={"a/bank": float(number)}))
            tags.append(set(own.tags))

    monkeypatch.setattr(loader.continuous, "load", load)
    monkeypatch.setattr(loader.session, "activate", lambda _: None)
    monkeypatch.setattr(Loader, "_new", lambda *_: spark)
    request = Request(config=lake.path, stream="bank", every=15)
    assert Loader(spark, lake).follow("tag", request, reports.append, StopRequest()) == Answer()
    assert [(each.goes_on, each.report["lag"]) for each in reports] == [
        (True, {"a/bank": 0.0}),
        (True, {"a/bank": 1.0}),
    ]
    assert (tags, spark.tags) == ([{"tag"}, {"tag"}], set())
