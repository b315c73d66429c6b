"""The alerts of the lake fire and resolve, in a real Prometheus that scrapes what the console shows of real Delta tables."""

import json
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from headrace.console import metrics
from headrace.console.bridges import Bridges
from headrace.console.lake import Lake, RetentionView
from headrace.console.sources import rows
from headrace.metrics.endpoint import Endpoint
from headrace.retention import StreamRetention
from headrace.status.answer import Answer, SourceStatus
from infra.local.server import free_port
from tests.monitoring.rules import shortened
from tests.rules.waiting import eventually
from tests.servers.prometheus import MONITORING, Prometheus, read_rules

(ALERTS,) = ({rule["alert"] for rule in group["rules"]} for group in yaml.safe_load(read_rules("lake"))["groups"])
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
TEXTS = pa.map_(pa.string(), pa.string())
TIME = pa.timestamp("us", tz="UTC")
QUALITY = pa.struct(
    [
        ("expectation", pa.string()),
        ("expression", pa.string()),
        ("total", pa.int64()),
        ("total_failing", pa.int64()),
        ("problem", pa.string()),
    ]
)
STATE = pa.schema(
    [("stream", pa.string()), ("table", pa.string()), ("load", pa.int64()), ("positions", TEXTS), ("reason", pa.string()),
     ("version", pa.int64()), ("keyed", pa.bool_()), ("warnings", TEXTS), ("changes", pa.int64()), ("finished_at", TIME),
     ("quality", pa.list_(QUALITY))]
)  # fmt: skip
REACHED = pa.struct([("source", pa.string()), ("upto", pa.string()), ("commit_time", TIME)])
LOADS = pa.schema(
    [("stream", pa.string()), ("step", pa.string()), ("load", pa.int64()), ("started_at", TIME), ("finished_at", TIME),
     ("seconds", pa.float64()), ("rows", pa.int64()), ("files", pa.int64()), ("sources", pa.list_(REACHED)),
     ("tables", pa.list_(pa.string()))]
)  # fmt: skip


class Shown:
    """What the console shows at `/metrics`, read at each scrape."""

    def __init__(self, root):
        self.lake = Lake(str(root))
        self.bridges = Bridges(("b:1",), ("a/b",))
        self.kafka = kept(60.0, "Kafka does not answer")
        self.collector = self

    def text(self):
        self.lake.look()
        lake = self.lake.view()
        return metrics.text(self.bridges.view(), lake, self.kafka, rows(self.bridges.view(), lake, {"a/b": "bank"}))


def kept(left, problem=""):
    """Return what is known of a stream whose oldest record that lacks is kept for so many seconds more, of an hour."""
    stream = StreamRetention(retention=3600.0, removal_at=time.time() + left)
    return RetentionView(streams={"bank": stream}, problem=problem, asked=True)


def publish(root, load, upto, reason, verdict, committed):
    """Append what a load and a verification write."""
    now = datetime.now(UTC)
    common = {"stream": "bank", "load": load, "finished_at": now}
    results = [common | {"table": None, "positions": [("a/b", upto)]}]
    quality = {
        "expectation": "positive",
        "expression": "n > 0",
        "total": 3,
        "total_failing": 1 if reason else 0,
        "problem": None,
    }
    results += [common | {"table": "public.t", "version": load, "reason": reason, "quality": [quality]}]
    write_deltalake(str(root / "state"), pa.Table.from_pylist(results, schema=STATE), mode="append")
    source = {"source": "a/b", "upto": upto, "commit_time": committed}
    done = {"stream": "bank", "step": "silver", "load": load, "started_at": now, "finished_at": now, "seconds": 1.0}
    done |= {"rows": 1, "files": 1, "sources": [source], "tables": ["public.t"]}
    write_deltalake(str(root / "loads"), pa.Table.from_pylist([done], schema=LOADS), mode="append")
    one = {"verified_at": now, "stream": "bank", "source": "a/b", "table": "public.t", "verdict": verdict}
    one |= {"rows_source": 1, "rows_lake": 1, "ranges": 1, "ranges_compared": 1}
    write_deltalake(str(root / "verified"), pa.Table.from_pylist([one]), mode="append")


def test_every_alert_of_the_lake_fires_by_its_cause_and_resolves(tmp_path):
    lake = tmp_path / "lake"
    publish(lake, 1, "1", "a column changed", "not equal", datetime.now(UTC) - timedelta(days=2))
    shown = Shown(lake)
    status = SourceStatus(source="a/b", state="serving", position="2")
    shown.bridges.ask("b:1", lambda *_: (Answer(part="bridge", running=True, sources=[status]), ""))
    endpoint = Endpoint(f"127.0.0.1:{free_port()}", shown)
    prometheus = Prometheus(
        tmp_path / "prometheus", free_port(), [f"127.0.0.1:{endpoint.port}"], shortened(), interval="1s"
    )
    prometheus.start()
    try:
        first = ALERTS - {"HeadraceLakeUnreadable", "HeadraceConsoleAbsent"}
        eventually(
            lambda: prometheus.firing() >= first, 60, saying="a lake that is behind, stopped and differs is seen"
        )
        for panel in [each for each in DASHBOARD["panels"] if "headrace_lake" in each["targets"][0]["expr"]]:
            assert prometheus.query(panel["targets"][0]["expr"]), panel["title"]
        # When it is loaded and verified again.
        shown.kafka = kept(3600.0)
        publish(lake, 2, "2", None, "equal", datetime.now(UTC))
        eventually(lambda: not prometheus.firing() & ALERTS, 60, saying="they resolve")
        # When its root is gone, and there again.
        lake.rename(tmp_path / "gone")
        eventually(lambda: "HeadraceLakeUnreadable" in prometheus.firing(), 60, saying="a lake that is gone is seen")
        (tmp_path / "gone").rename(lake)
        eventually(lambda: not prometheus.firing() & ALERTS, 60, saying="it resolves")
        # V11: when nobody shows it any more
        endpoint.stop()
        eventually(lambda: "HeadraceConsoleAbsent" in prometheus.firing(), 60, saying="an absent console is seen")
    finally:
        print("firing:", sorted(prometheus.firing()))
        prometheus.stop()
        endpoint.stop()
