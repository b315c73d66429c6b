"""Values with which the chart is rendered and installed: the examples, the least that each part needs, everything at once."""

import yaml

from tests.kubernetes.helm import EXAMPLES

EDGE = """
[source]
name = "jakarta/bank"
[source.postgresql]
host = "127.0.0.1"
database = "bank"
user = "postgres"
[interconnect]
url = "amqp://127.0.0.1:5672"
[state]
folder = "/var/lib/headrace/state"
[metrics]
listen = "0.0.0.0:9187"
"""
BRIDGE = """
[kafka]
bootstrap = "127.0.0.1:9092"
[interconnect]
listen = "0.0.0.0:5672"
[metrics]
listen = "0.0.0.0:9188"
[streams.bank]
sources = { "jakarta/bank" = [0] }
"""
LAKE = """
[lake]
root = "s3a://bucket/lake"
[kafka]
bootstrap = "127.0.0.1:9092"
[streams.bank]
sources = ["jakarta/bank"]
"""
IMAGES = {part: {"repository": f"localhost/headrace-{part}"} for part in ("edge", "bridge", "lake")}
_PEERS = [{"namespaceSelector": {"matchLabels": {"team": "data"}}}]


def edge(**more: object) -> dict:
    """Return the least that one edge needs."""
    return {"images": IMAGES, "edges": {"bank": {"configuration": EDGE, **more}}}


def bridge(**more: object) -> dict:
    """Return the least that bridges need."""
    return {"images": IMAGES, "bridge": {"enabled": True, "configuration": BRIDGE, **more}}


def lake(**more: object) -> dict:
    """Return the least that the lake's jobs need."""
    more = {"maintain": {"streams": ["bank"]}} | more
    return {"images": IMAGES, "lake": {"enabled": True, "configuration": LAKE, **more}}


def everything() -> dict:
    """Return values that take each way through the templates that the examples leave out."""
    placed = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "podAnnotations": {"team": "data"},
    }
    given = {
        "environment": {"PASSWORD": {"secret": "some", "key": "password"}},
        "variables": {"TZ": "UTC"},
        "secrets": {"certificate": "some"},
    }
    metric = {
        "type": "External",
        "external": {"metric": {"name": "lag"}, "target": {"type": "AverageValue", "averageValue": "60"}},
    }
    options = {"storage": {"size": "1Gi", "className": "fast"}, "init": {"arguments": ["--adopt", "--new-epoch"]}}
    second = {"configuration": EDGE.replace("jakarta/bank", "jakarta/shop"), "init": {"enabled": False}}
    values = edge(**given, **placed, **options, resources={"requests": {"cpu": "1"}})
    values["images"] = IMAGES | {"pullSecrets": ["registry"], "pullPolicy": "Always"}
    values["edges"]["shop"] = second
    scaling = {"enabled": True, "cpu": 0, "metrics": [metric]}
    creator = {"environment": {"PASSWORD": {"secret": "creator", "key": "password"}}}
    service = {"each": True, "annotations": {"internal": "true"}, "port": 5672}
    values |= {
        "fullnameOverride": "other",
        "bridge": bridge(**given, **placed, autoscaling=scaling, init=creator, service=service)["bridge"],
        "lake": lake(**given, **placed, storage={"claim": "lake"}, serviceAccount="spark")["lake"],
        "console": {"enabled": True, "token": {"secret": "console", "key": "text"}, "hosts": ["console.example"]},
        "networkPolicy": {
            "metricsFrom": _PEERS,
            "consoleFrom": _PEERS,
            "bridgeFrom": _PEERS,
            "lakeFrom": _PEERS,
            "edgeEgress": [{"to": _PEERS, "ports": [{"protocol": "TCP", "port": 5432}]}],
        },
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": {"team": "data"}},
            "prometheusRule": {"enabled": True, "labels": {"team": "data"}},
        },
    }
    return values


def example(name: str) -> dict:
    """Return an example's values."""
    return yaml.safe_load((EXAMPLES / f"{name}-values.yaml").read_text())


#: By name.
ALL = {
    "region": example("region"),
    "headquarters": example("headquarters"),
    "edge": edge(),
    "bridge": bridge(),
    "bridge behind a router": bridge(
        configuration=BRIDGE.replace('listen = "0.0.0.0:5672"', 'url = "amqps://router.example:5671"'),
        service={"enabled": False},
        disruptionBudget={"enabled": False},
    ),
    "lake": lake(),
    "lake that Airflow maintains": lake(maintain={"schedule": ""}),
    "everything": everything(),
    "without policies": edge() | {"networkPolicy": {"enabled": False}},
}
