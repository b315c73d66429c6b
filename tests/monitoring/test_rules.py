"""Every rule fires and resolves, and every panel has data, in a real Prometheus that scrapes the real endpoints of parts.

The figures behind the endpoints are set by hand, so that all rules are seen within two minutes and without any other server.
"""

import json
import re
import subprocess
import time

import pytest
import yaml

from bridge.deliveries.record import DeliveryMetrics
from bridge.metrics import Complete, LaneMetrics, SourceMetrics
from bridge.service import BridgeService
from edge.answers.handlers import EdgeService
from edge.observability.figures import Figures
from headrace import doors
from headrace.certificates.command import Authority
from headrace.certificates.files import ConnectionMetrics, Expiry
from headrace.configuration.sections import Certificates
from headrace.errors import CorruptInput, NeedsOperator
from headrace.metrics.endpoint import Endpoint
from headrace.process import HeldService
from infra.local.server import free_port
from tests.monitoring.rules import shortened
from tests.rules.waiting import eventually
from tests.servers.prometheus import MONITORING, Prometheus, program, read_rules

#: Those of the lake have a test of their own (test_lake_rules.py).
ALERTS = {
    rule["alert"] for group in yaml.safe_load(read_rules("headquarters", "region"))["groups"] for rule in group["rules"]
}
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())


def well(**edge):
    """Return the figures of a source that is served and whose edge captures."""
    now = time.monotonic()
    figures = SourceMetrics(state="serving", heard_at=now, complete=Complete(now, 0.0, 0))
    room = {"spool_bytes": 0, "spool_limit_bytes": 1000, "retained_wal_bytes": 1, "safe_wal_bytes": 1000}
    lags = {"captured_lag_seconds": 0.0, "accepted_lag_seconds": 0.0}
    figures.edge = (
        {"state": "capturing", "heartbeat_seconds": 1000.0, "state_disk_free_bytes": 10**12} | room | lags | edge
    )
    return figures


def ill(soon):
    """Return figures of sources each of which has something else; `soon`: when a certificate ends, in seconds since 1970."""
    long_ago = time.monotonic() - 1000
    sources = {
        "a/stopped": well(state="needs an operator"),
        "a/silent": well(heartbeat_seconds=1.0),
        "a/database": well(state="database down"),
        "a/warns": well(warnings="something"),
        "a/log": well(retained_wal_bytes=90, safe_wal_bytes=10),
        "a/binlog": well(unconfirmed_log_seconds=81.0, log_retention_seconds=100.0),
        "a/spool": well(spool_bytes=90, spool_limit_bytes=100),
        "a/disk": well(state_disk_free_bytes=10**9, spool_limit_bytes=10**10),
        "a/certificate": well(certificate_expiry_time=soon),
        "a/gap": well(),
        "a/unserved": well(),
    }
    sources["a/silent"].heard_at = long_ago
    sources["a/gap"].state = "gap"
    sources["a/unserved"].state = "not served"
    sources["a/gap"].withheld = {"public.t": "the registry refuses its schema"}
    return sources


@pytest.fixture
def parts(tmp_path):
    """Yield an edge's and a bridge's figures, and the endpoints that show them, next to those of parts that are held."""
    authority = Authority(tmp_path / "certs")
    sources = {"a/well": well()}
    delivery = DeliveryMetrics(state="delivering")
    figures = Figures(database_connected=1, interconnect_connected=1, spool_bytes=0, spool_limit_bytes=1000)
    figures.certificates = Expiry(Certificates(authority=authority.folder / "authority.pem"))
    figures.state_folder = tmp_path
    figures.retained_wal_bytes, figures.safe_wal_bytes = 1, 1000
    connections = {"interconnect": ConnectionMetrics(Expiry(Certificates()))}
    lanes = {"0": LaneMetrics()}
    bridge = BridgeService(
        lambda: sources, lambda: lanes, lambda: True, lambda: "", {"alerts": delivery}, connections, dict
    )
    lost = NeedsOperator("the slot is gone", hint="Do something.")
    services = {
        "bridge": bridge,
        "edge": EdgeService("a/well", figures, lambda: ""),
        "held bridge": HeldService("bridge", ["a/held"], lost),
        "held edge": HeldService("edge", ["a/held"], lost),
        "second bridge": HeldService("bridge", [], lost),
        "second edge": EdgeService("a/second", Figures(database_connected=1, interconnect_connected=1), lambda: ""),
    }
    endpoints = {name: Endpoint(f"127.0.0.1:{free_port()}", service) for name, service in services.items()}
    yield authority, sources, delivery, figures, endpoints, services
    for endpoint in endpoints.values():
        endpoint.stop()


def test_every_alert_fires_and_resolves_and_every_panel_has_data(parts, tmp_path):
    authority, sources, delivery, figures, endpoints, services = parts
    targets = [f"127.0.0.1:{endpoint.port}" for endpoint in endpoints.values()]
    prometheus = Prometheus(tmp_path / "prometheus", free_port(), targets, shortened(), interval="1s")
    prometheus.start()
    try:
        eventually(lambda: prometheus.ready, 60, saying="Prometheus answers")
        for panel in DASHBOARD["panels"]:
            # Those of the lake are in test_lake_rules.py.
            for target in [each for each in panel["targets"] if "headrace_lake" not in each["expr"]]:
                asked = re.sub(r"\[\dm\]", "[15s]", target["expr"].replace("$source", ".*"))
                eventually(lambda asked=asked: prometheus.query(asked), 60, saying=f"{panel['title']}: {asked}")

        # when one input is refused, which makes its series
        doors.BATCH.refuse(CorruptInput("x"), "a/rogue")
        eventually(lambda: "HeadraceInputRefused" in prometheus.firing(), 60, saying="the first one is seen")

        # when everything is wrong
        endpoints["second bridge"].stop()
        endpoints["second edge"].stop()
        own = authority.client("a/well", 3)
        figures.certificates = Expiry(Certificates(certificate=own, key=own.with_suffix(".key")))
        sources.update(ill(figures.certificate_expiry))
        figures.spool_bytes, figures.spool_limit_bytes = 9 * 10**14, 10**15
        figures.retained_wal_bytes, figures.safe_wal_bytes = 90, 10
        figures.unacknowledged_batches, figures.accepted_at = 1, time.monotonic() - 500
        sources["a/well"].complete = Complete(time.monotonic(), 1000.0, 0)
        delivery.state, delivery.oldest_ms = "needs an operator", 0

        def fire():
            # Counters have to grow for a rate.
            doors.BATCH.refuse(CorruptInput("x"), "a/rogue")
            sources["a/well"].rejected += 1
            sources["a/well"].setbacks += 1
            sources["a/well"].commit_seconds.add(3.0)
            delivery.dead_lettered += 1
            missing = ALERTS - prometheus.firing()
            assert not missing, missing
            return True

        eventually(fire, 90, every=0.5, saying="all alerts fire")

        # when all is well again, and what is gone is there no more
        for name in [name for name in sources if name != "a/well"]:
            del sources[name]
        sources["a/well"] = well()
        delivery.state = "delivering"
        figures.spool_bytes, figures.spool_limit_bytes = 0, 1000
        figures.retained_wal_bytes, figures.safe_wal_bytes = 1, 1000
        figures.unacknowledged_batches = 0
        authority.client("a/well", 90)
        delivery.oldest_ms = None
        # Of the lake nothing is scraped here.
        absent = {"HeadraceBridgeAbsent", "HeadraceEdgeAbsent", "HeadraceConsoleAbsent"}
        # The held parts stay, and with them the state of their source.
        held = absent | {"HeadraceBridgeNeedsOperator", "HeadraceEdgeNeedsOperator", "HeadraceSourceNeedsOperator"}
        eventually(lambda: prometheus.firing() <= held, 90, every=0.5, saying="all others resolve")
        endpoints["second bridge"] = Endpoint(targets[4], services["second bridge"])
        endpoints["second edge"] = Endpoint(targets[5], services["second edge"])
        eventually(
            lambda: prometheus.firing() & absent == {"HeadraceConsoleAbsent"}, 60, saying="they are scraped again"
        )
    finally:
        print("firing:", sorted(prometheus.firing()))
        prometheus.stop()


def test_promtool_accepts_the_rules_as_they_are_and_as_they_are_tested(tmp_path):
    (tmp_path / "short.yml").write_text(shortened())
    for file in (*(MONITORING / "alerts").iterdir(), tmp_path / "short.yml"):
        done = subprocess.run(
            [program("promtool"), "check", "rules", file], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def shown(labels):
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def scraped(metric, values, **labels):
    """Return the series of a target by its samples, one every 30 s: `1`, `0` while it does not answer, `_` while it is none."""
    samples = " ".join({"0": "stale", "_": "stale"}.get(value, value) for value in values)
    up = " ".join({"_": "stale"}.get(value, value) for value in values)
    return [
        {"series": f"{metric}{{{shown(labels)}}}", "values": samples},
        {"series": f"up{{{shown(labels)}}}", "values": up},
    ]


def bridge(values, **labels):
    return scraped("headrace_bridge_build_info", values, **labels)


def pod(name, address, values):
    return bridge(values, namespace="data", pod=name, instance=f"{address}:9188")


def edge(address, values, **labels):
    (state, up) = scraped("headrace_edge_state", values, source="a/b", state="capturing", instance=address, **labels)
    (release, _) = scraped("headrace_edge_build_info", values, instance=address, **labels)
    # A target has the labels of its address alone.
    return [state, release, up | {"series": f"up{{{shown({'instance': address} | labels)}}}"}]


def console(address, values):
    return scraped("headrace_lake_up", values, instance=address)


#: By name: what is scraped in 15 minutes, and the labels of what fires at their end; nothing fires before where there are none.
ABSENCES = {
    "nothing was ever there": ([], [{}]),
    "a rollout and an eviction: the same pod at another address": (
        [*pod("b-0", "10.0.0.1", "1" * 10 + "0" + "_" * 19), *pod("b-0", "10.0.0.7", "_" * 13 + "1" * 17)],
        [],
    ),
    "a scale-down: nobody is to scrape it": (
        [*pod("b-0", "10.0.0.1", "1" * 30), *pod("b-1", "10.0.0.2", "1" * 10 + "_" * 20)],
        [],
    ),
    "a pod that does not answer": (
        [*pod("b-0", "10.0.0.1", "1" * 30), *pod("b-1", "10.0.0.2", "1" * 10 + "0" * 20)],
        [{"namespace": "data", "pod": "b-1"}],
    ),
    "a pod that does not answer at its next address": (
        [
            *pod("b-0", "10.0.0.1", "1" * 30),
            *pod("b-1", "10.0.0.2", "1" * 10 + "_" * 20),
            *pod("b-1", "10.0.0.9", "_" * 10 + "0" * 20),
        ],
        [{"namespace": "data", "pod": "b-1"}],
    ),
    "a machine that does not answer": (
        [*bridge("1" * 30, instance="one:9188"), *bridge("1" * 10 + "0" * 20, instance="two:9188")],
        [{"instance": "two:9188"}],
    ),
    "a machine that was taken out of the file": (
        [*bridge("1" * 30, instance="one:9188"), *bridge("1" * 10 + "_" * 20, instance="two:9188")],
        [],
    ),
}
#: As above, of an edge and of the console.
RUNNING = {"series": "headrace_edge_build_info", "values": "1x30"}
EDGES = {
    "an edge at another address": ([*edge("a:1", "1" * 10 + "_" * 20), *edge("b:1", "_" * 12 + "1" * 18)], []),
    "an edge that ended, next to one that runs": ([*edge("a:1", "1" * 10 + "0" * 20), RUNNING], [{"source": "a/b"}]),
    "an edge that was retired: nobody is to scrape it": ([*edge("a:1", "1" * 10 + "_" * 20), RUNNING], []),
    "an edge's pod that does not answer at its next address": (
        [
            *edge("a:1", "1" * 10 + "_" * 20, namespace="data", pod="e-0"),
            *edge("b:1", "_" * 10 + "0" * 20, namespace="data", pod="e-0"),
            RUNNING,
        ],
        [{"source": "a/b"}],
    ),
    "no edge": ([], [{}]),
}
CONSOLES = {
    "a console at another address": ([*console("a:1", "1" * 5 + "_" * 25), *console("b:1", "_" * 15 + "1" * 15)], []),
    "a console that ended": (console("a:1", "1" * 5 + "_" * 25), [{}]),
}
ALL_ABSENCES = [
    pytest.param(place, alert, *case, id=name)
    for place, alert, cases in (
        ("headquarters", "HeadraceBridgeAbsent", ABSENCES),
        ("region", "HeadraceEdgeAbsent", EDGES),
        ("lake", "HeadraceConsoleAbsent", CONSOLES),
    )
    for name, case in cases.items()
]


@pytest.mark.parametrize(("place", "alert", "series", "firing"), ALL_ABSENCES)
def test_v10_what_is_absent_pages_and_what_has_moved_or_is_wanted_no_more_does_not(
    place, alert, series, firing, tmp_path
):
    """V10: each rollout (by address), then each scale-down (by pod) of bridges paged."""
    expected = [{"labels": f"{{{shown(labels)}}}", "value": 1} for labels in firing]
    asked = f'group by (namespace, pod, instance, source) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    ended = {"expr": asked, "eval_time": "15m", "exp_samples": expected}
    ever = {"expr": f"max_over_time(({asked})[15m:30s])", "eval_time": "15m", "exp_samples": []}
    test = {
        "interval": "30s",
        "input_series": series,
        "promql_expr_test": [ended] if firing else [ended, ever],
    }
    file = tmp_path / "test.yml"
    rules = [str(MONITORING / "alerts" / f"{place}.yml")]
    file.write_text(json.dumps({"rule_files": rules, "evaluation_interval": "30s", "tests": [test]}))
    done = subprocess.run(
        [program("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
