"""Every page renders, whatever is known: nothing at all, a thousand sources, a bridge that is gone, a lake with every state."""

import asyncio
import re
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import httpx
import pytest

from headrace.command import root
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.console import lake as lakes
from headrace.console import sources
from headrace.console.bridges import Bridges
from headrace.console.charts import History
from headrace.console.lake import Lake, Retention, RetentionView
from headrace.console.lake_view import Expectation, LakeView, Load, Reached, StreamPublished, TablePublished, Verdict
from headrace.console.pages import Known, Pages
from headrace.console.server import Settings, application
from headrace.console.sources import Files
from headrace.console.table_detail import TableDetails
from headrace.retention import StreamRetention
from headrace.status.answer import Answer, DeliveryStatus, SnapshotStatus, SourceStatus
from tests.rules.waiting import eventually

PATHS = ("/", "/loads", "/tables", "/trends", "/sources/jakarta/bank", "/?sort=lag&q=x", "/loads?range=7d", "/metrics")
NOW = datetime.now(UTC)


def whole_lake():
    """Return a lake with a table in every state, verdicts and loads."""
    stream = StreamPublished(stream="bank", load=3, changes=5, finished_at=NOW, positions={"jakarta/bank": "2"})
    base = {"stream": "bank", "warnings": ("rows may differ",), "version": 1, "keyed": False, "copying": {}}
    base |= {"positions": {"jakarta/bank": "1"}, "published_at": NOW}
    tables = tuple(
        TablePublished(
            table=f"public.{state}", name=state, state=state, reason="why" if state == "stopped" else "", **base
        )
        for state in ("published", "behind", "copying", "stopped", "not made")
    )
    failing = Expectation(name="positive", total=3, failing=1, problem="")
    wrong = Expectation(name="named", total=None, failing=None, problem="no column nam")
    tables = (replace(tables[0], expectations=(failing, wrong)), *tables[1:])
    verdict = Verdict(verdict="not equal", verified_at=NOW, rows_source=3, rows_lake=2, compared=10.0)
    reached = Reached(upto="1", commit_time=NOW - timedelta(days=2), finished_at=NOW)
    loads = tuple(
        Load(stream="bank", step=step, load=1, started_at=NOW, finished_at=NOW, seconds=3.0, rows=10, files=1, tables=1)
        for step in ("bronze", "silver")
    )
    return LakeView(
        read_at=time.time(),
        streams={"bank": stream},
        tables=tables,
        loads=loads,
        reached={(step, "jakarta/bank"): reached for step in ("bronze", "silver")},
        verdicts={("bank", "jakarta/bank", "public.behind"): verdict},
    )


def answer(count=1):
    names = ["jakarta/bank", *(f"r{number % 50}/db{number}" for number in range(count - 1))]
    status = {"state": "serving", "edge_state": "capturing", "committed_lag_seconds": 0.1, "records_per_second": 5.0}
    return Answer(
        part="bridge",
        running=True,
        ready=True,
        sources=[
            SourceStatus(source=name, warnings=["<script>alert(1)</script>"], position="2", **status) for name in names
        ],
        deliveries=[DeliveryStatus(delivery="alerts", state="delivering")],
    )


class Served:
    """The application over a bridge that answers what a test wants."""

    def __init__(self, folder, lake, details=None, loaded=None):
        (folder / "bridge.toml").write_text(
            '[kafka]\nbootstrap = "k:1"\n[interconnect]\nlisten = "127.0.0.1:0"\n[streams.bank.sources]\n"jakarta/bank" = [0]\n'
        )
        self.bridges = Bridges(("b:1",), ("jakarta/bank",))
        self.lake = Lake(None)
        self.lake._view = lake
        self.retention = Retention(None, lambda: None)
        settings = Settings(bridge=load(folder / "bridge.toml", BridgeFile), at=("b:1",))
        self.pages = Pages(
            Known(
                bridges=self.bridges,
                lake=self.lake,
                details=details or TableDetails(None, wait_seconds=0),
                retention=self.retention,
                history=History(),
                prometheus=None,
                streams={"jakarta/bank": "bank"},
                feeds=settings.bridge.streams,
                loaded=loaded or {},
                files=Files("bridge.toml", "lake.toml"),
                has_login=True,
            )
        )
        self.application = application(self.pages, settings)

    def hear(self, found, problem=""):
        self.bridges.ask("b:1", lambda *_: (found, problem))

    def get(self, path, **headers):
        async def answered():
            transport = httpx.ASGITransport(self.application)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9420") as asking:
                return await asking.get(path, headers=headers)

        return asyncio.run(answered())


@pytest.mark.parametrize(
    "lake", [LakeView(configured=False), LakeView(problem="nothing is published yet"), whole_lake()]
)
def test_every_page_renders_before_during_and_after_a_bridge_answers(tmp_path, lake):
    served = Served(tmp_path, lake)
    for heard in (None, (answer(), ""), (None, "nobody answers at b:1")):
        if heard is not None:
            served.hear(*heard)
        for path in PATHS:
            result = served.get(path)
            assert result.status_code == 200, (path, result.text)
            assert "<script>alert" not in result.text
            assert 'style="' not in result.text
            fragment = served.get(path, **{"X-Fragment": "1"})
            assert fragment.status_code == 200
            assert path == "/metrics" or "<html" not in fragment.text


def test_a_page_that_does_not_exist_is_404_in_html(tmp_path):
    served = Served(tmp_path, LakeView(configured=False))
    for path in ("/nope", "/sources/no/such", "/sources/%3Cscript%3E/x"):
        result = served.get(path)
        assert result.status_code == 404
        assert "<h1>No" in result.text
        assert "<script>" not in result.text


def test_the_page_of_a_bridge_that_does_not_answer_says_what_to_check(tmp_path):
    served = Served(tmp_path, LakeView(configured=False))
    served.hear(answer())
    served.hear(None, "nobody answers at b:1: Connection refused")
    text = served.get("/").text
    assert ">The source is failing</h1>" in text
    assert "Connection refused" in text
    assert "Check that its process runs" in text


def test_a_page_of_sources_is_as_long_whatever_their_number(tmp_path):
    lengths = {}
    for number in (200, 1000, 3000):
        served = Served(tmp_path, whole_lake())
        served.hear(answer(number))
        text = served.get("/").text
        assert f"page 1 of {number // 100}" in text
        lengths[number] = len(text)
    assert max(lengths.values()) < 1.02 * lengths[200], lengths


class Counted(dict):
    """Verdicts, and how often all of them were gone through."""

    times = 0

    def items(self):
        self.times += 1
        return super().items()

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_a_list_of_tables_goes_through_the_verdicts_a_few_times_however_many_tables_there_are(tmp_path):
    """Ten thousand tables with a verdict each took three minutes: all verdicts were searched for each table."""
    view = whole_lake()
    tables = tuple(replace(view.tables[0], table=f"public.t{number}") for number in range(1000))
    (found,) = view.verdicts.values()
    verdicts = Counted({("bank", "jakarta/bank", table.table): found for table in tables})
    served = Served(tmp_path, replace(view, tables=tables, verdicts=verdicts))
    served.hear(answer(200))
    for path in ("/tables", "/", "/metrics", "/sources/jakarta/bank"):
        assert served.get(path).status_code == 200
    assert verdicts.times < 10
    assert served.get("/tables").text.count(" not equal</span>") == 500


@pytest.mark.parametrize(
    ("snapshot", "shown"),
    [
        (SnapshotStatus(table="s.<t>", rows=1200, estimated_rows=5000, rows_per_second=100.0, tables=3),
         "s.&lt;t&gt;: 1,200 of about 5,000 rows, 100 a second, about 38s left. 2 more tables wait."),
        (SnapshotStatus(table="s.t", rows=7, paused=True, tables=2), "s.t (paused): 7 rows. 1 more table waits."),
        (None, "No table of this source is copied now."),
    ],
)  # fmt: skip
def test_the_page_of_a_source_shows_its_snapshot_in_rows(tmp_path, snapshot, shown):
    served = Served(tmp_path, LakeView(configured=False))
    result = answer()
    result.sources[0].snapshot = snapshot
    served.hear(result)
    text = re.sub(r"<progress.*?</progress>|<(?!h2)[^>]*>", "", served.get("/sources/jakarta/bank").text)
    text = re.sub(r"\s+([,.])?", lambda space: space[1] or " ", text)
    assert shown in text, text[text.index("Snapshots") :][:300]


def test_the_page_of_loads_shows_for_how_long_kafka_keeps_what_is_not_loaded(tmp_path):
    served = Served(tmp_path, whole_lake())
    now = time.time()
    served.retention._view = RetentionView(
        asked=True,
        streams={
            "bank": StreamRetention(retention=604_800.0, removal_at=now + 3601),
            "cards": StreamRetention(retention=604_800.0, removal_at=None),
            "audit": StreamRetention(retention=None, removal_at=None),
        },
    )
    text = " ".join(served.get("/loads").text.split())
    assert "Kafka may remove records of bank that are not loaded in 60m." in text
    assert "headrace lake load bank --config lake.toml" in text
    assert "Kafka keeps what is not loaded of cards for 7d more, of 7d." in text
    assert "Kafka keeps what is not loaded of audit without a limit in time." in text
    shown = served.get("/metrics").text
    assert re.search(r'headrace_lake_kafka_headroom_seconds\{stream="bank"\} 3[56]\d\d\.', shown)
    assert 'headrace_lake_kafka_retention_seconds{stream="cards"} 604800.0' in shown
    assert 'stream="audit"' not in shown
    served.retention._view = RetentionView(asked=True, problem="Kafka at k:1 does not answer", hint="Look.")
    assert "Kafka at k:1 does not answer" in served.get("/loads").text
    assert "headrace_lake_kafka_up 0.0" in served.get("/metrics").text


def test_every_command_that_is_shown_exists(tmp_path):
    view = whole_lake()
    statuses = [
        {"state": "serving", "edge_state": state}
        for state in ("silent", "needs an operator", "database down", "interconnect down", "starting", "capturing")
    ]
    statuses += [{"state": state} for state in ("gap", "starting", "waiting for Kafka")]
    files = Files("bridge.toml", "a lake.toml")
    commands = {step.command for table in view.tables if (step := sources.step_of_table(table, files))}
    for status in statuses:
        served = Served(tmp_path, view)
        (found,) = answer().sources
        changed = {name: getattr(found, name) for name in found.__struct_fields__} | status
        served.hear(Answer(part="bridge", running=True, sources=[SourceStatus(**changed)]))
        (row,) = sources.rows(served.bridges.view(), view, {"jakarta/bank": "bank"})
        commands |= {step.command for step in sources.steps_of_source(row, view, files)}
    # Q4, V16: by the reason of a stop, which names what comes first
    stopped = next(table for table in view.tables if table.state == "stopped")
    for reason, command in (
        ("its key changed Copy the table again ('headrace edge snapshot t --replace'), then 'headrace lake rebuild …'",
         "ask jakarta/bank snapshot --replace public.stopped"),
        ("made by somebody else 'headrace lake replay STREAM' builds them from bronze", "lake replay bank"),
        ("public.stopped has no key Give the table a primary key", "lake load bank"),
        ("no such value Set on_unsupported = \"null\", then 'headrace edge snapshot --replace'", "lake load bank"),
    ):  # fmt: skip
        step = sources.step_of_table(replace(stopped, reason=reason), files)
        assert command in step.command
        commands.add(step.command)
    assert len(commands) >= 9
    for line in commands:
        words = shlex.split(line)[1:]
        command = root
        context = click.Context(root)
        while isinstance(command, click.Group):
            name, words = words[0], words[1:]
            found = command.get_command(context, name)
            assert found is not None, line
            command, context = found, click.Context(found, parent=context)
        command.make_parser(context).parse_args(words)


class Broken:
    def __init__(self, error):
        self.error = error

    def rows(self, *_):
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (lakes.ReplicationError("the disk is gone"), "the disk is gone"),
        (ZeroDivisionError("x"), "the console itself has a defect here (ZeroDivisionError): its log has the details"),
    ],
)
def test_a_lake_that_cannot_be_read_any_more_keeps_what_was_read(error, words):
    lake = Lake("/nowhere")
    lake._view = whole_lake()
    lake._reader = Broken(error)
    lake.look()
    assert lake.view().problem == words
    assert len(lake.view().tables) == 5


def test_a_look_at_the_lake_that_hangs_is_shown():
    now = 0.0
    lake = Lake("/nowhere", clock=lambda: now)
    lake._view = whole_lake()
    now = 129.0
    assert lake.view().problem == ""
    now = 131.0
    late = lake.view()
    assert late.problem == "a look at it has not ended for 131 s and more"
    # Its tables are indexed once, not for each page.
    now = 150.0
    assert lake.view() is late
    assert len(lake.view().tables) == 5


def test_what_nobody_expected_ends_no_thread_and_is_shown(tmp_path):
    """A thread that had died left the page as it was last, all green."""
    bridges = Bridges(("b:1",), ("jakarta/bank",))
    bridges.ask("b:1", lambda *_: (answer(), ""))
    assert bridges.view().silent == []

    def broken(*_):
        raise TypeError("x")

    bridges.ask("b:1", broken)
    (bridge,) = bridges.view().silent
    assert "defect here (TypeError)" in bridge.problem
    assert bridges.view().sources["jakarta/bank"].problem == bridge.problem
    bridges.ask("b:1", lambda *_: (answer(), ""))
    assert bridges.view().silent == []

    (tmp_path / "lake.toml").write_text(
        '[lake]\nroot = "x"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.bank]\nsources = ["jakarta/bank"]\n'
    )
    retention = Retention(load(tmp_path / "lake.toml", LakeFile), broken, every=0.01)
    retention.start()
    eventually(lambda: "defect here (TypeError)" in retention.view().problem)
    retention.stop()
