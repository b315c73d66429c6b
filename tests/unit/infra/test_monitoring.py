"""Every metric that alert rules, dashboard and documentation name exists, and the documentation leaves none out."""

import json
import re
from pathlib import Path

import pytest
import yaml

from bridge.deliveries.record import STATES as DELIVERY_STATES
from bridge.deliveries.record import DeliveryMetrics
from bridge.metrics import LaneMetrics, SourceMetrics, ThreadMetrics
from bridge.model.phases import SourcePhase
from bridge.service import CONNECTION_PREFIX, DELIVERY_PREFIX, LANE_PREFIX, THREAD_PREFIX
from bridge.service import PREFIX as BRIDGE
from edge.answers.handlers import PREFIX as EDGE
from edge.observability.figures import STATES as EDGE_STATES
from edge.observability.figures import Figures
from headrace.certificates.files import ConnectionMetrics
from headrace.console.metrics import HELP as CONSOLE
from headrace.lake.own_tables import TABLE_STATES
from headrace.metrics.collector import metrics_of, names

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "infra" / "monitoring"
#: By place.
RULES = {file.stem: yaml.safe_load(file.read_text()) for file in (MONITORING / "alerts").iterdir()}
LANES = {f"{LANE_PREFIX}_{metric.name}" for metric in metrics_of(LaneMetrics).values()}
THREADS = {f"{THREAD_PREFIX}_{metric.name}" for metric in metrics_of(ThreadMetrics).values()}
ALL = names(EDGE, Figures) | names(BRIDGE, SourceMetrics) | LANES | THREADS
ALL |= {f"{CONNECTION_PREFIX}_{metric.name}" for metric in metrics_of(ConnectionMetrics).values()}
ALL |= {f"{DELIVERY_PREFIX}_{metric.name}" for metric in metrics_of(DeliveryMetrics).values()}
ALL |= CONSOLE.keys() | {
    "headrace_console_build_info",
    f"{BRIDGE}_refused_inputs_total",
    f"{EDGE}_refused_inputs_total",
    "headrace_console_refused_inputs_total",
}


def named(text):
    """Return the metrics that a text names; those of a histogram without what Prometheus adds."""
    texts = set(re.findall(r"\bheadrace_(?:edge|bridge|lake|console)_[a-z_]*[a-z]\b", text))
    return {re.sub(r"_bucket$", "", name) for name in texts}


@pytest.mark.parametrize("file", ["alerts/headquarters.yml", "alerts/region.yml", "alerts/lake.yml", "dashboard.json"])
def test_monitoring_names_only_metrics_that_there_are(file):
    used = named((MONITORING / file).read_text())
    assert len(used) > 5
    assert used - ALL == set()


def test_the_documentation_explains_every_metric_and_no_other():
    rows = re.findall(r"^\|(`headrace_.+?`) \|.+? \|.*?\|$", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    explained = [name for row in rows for name in re.findall(r"`(headrace_[a-z_]+)`", row)]
    assert set(explained) == ALL
    assert len(explained) == len(ALL)


def test_metrics_are_named_as_prometheus_asks():
    for name in ALL:
        assert re.fullmatch(r"[a-z][a-z_]*", name)
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent)(_|$)", name)


def test_states_in_rules_and_documentation_are_states():
    rules = "".join(file.read_text() for file in (MONITORING / "alerts").iterdir())
    for each in re.findall(r'state=~?"([^"]+)"', rules):
        assert set(each.split("|")) <= {*EDGE_STATES, *SourcePhase, *DELIVERY_STATES, *TABLE_STATES}
    reported = (ROOT / "docs" / "metrics.md").read_text()
    assert f"(label `state`): {', '.join(EDGE_STATES)} |" in reported
    assert f"(label `state`): {', '.join(SourcePhase)} |" in reported
    assert f"(label `state`): {', '.join(DELIVERY_STATES)} |" in reported


def test_every_rule_says_what_happened_and_what_to_do():
    rules = [rule for place in RULES.values() for group in place["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_v10_a_prometheus_has_the_rules_of_what_it_scrapes_alone():
    """One file had all rules: at headquarters, where no edge is scraped, HeadraceEdgeAbsent fired for good."""
    configuration = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert configuration["rule_files"] == ["alerts/headquarters.yml", "alerts/lake.yml"]
    for place, prefixes in {"headquarters": {"bridge"}, "region": {"edge"}, "lake": {"lake", "console"}}.items():
        used = {name.split("_")[1] for rule in RULES[place]["groups"][0]["rules"] for name in named(rule["expr"])}
        assert used <= prefixes


def test_the_dashboard_has_a_question_in_every_panel():
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert all(named(target["expr"]) for target in panel["targets"])
