"""The chart without a cluster: lint, Kubernetes' own schemas, the files in it, what pods may do, and what it refuses."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.console.command import console as console_command
from tests.kubernetes import values
from tests.kubernetes.helm import CHART, ENVIRONMENT, ROOT, HelmError, call, render

FILES = {"edge.toml": EdgeFile, "bridge.toml": BridgeFile, "lake.toml": LakeFile}
#: Resources of operators, which Kubernetes' own schemas do not know.
CUSTOM = {"ServiceMonitor", "PrometheusRule"}


@pytest.fixture(scope="module", params=values.ALL)
def rendered(request):
    """Yield the resources of each set of values."""
    return render(values.ALL[request.param])


def pods(resources):
    """Yield the pods' templates, by the resources' names."""
    for resource in resources:
        spec = resource.get("spec", {})
        if resource["kind"] in {"StatefulSet", "Deployment"}:
            yield resource["metadata"]["name"], spec["template"]["spec"]
        if resource["kind"] == "CronJob":
            yield resource["metadata"]["name"], spec["jobTemplate"]["spec"]["template"]["spec"]


def of(resources, kind):
    return {each["metadata"]["name"]: each for each in resources if each["kind"] == kind}


@pytest.mark.parametrize("name", values.ALL)
def test_helm_lint_finds_nothing(name):
    result = call("lint", values.ALL[name])
    assert not result["errors"]
    # 1 is information: the chart has no icon.
    assert not [each for each in result["messages"] if each["severity"] > 1]


def test_every_resource_keeps_kubernetes_schemas(rendered, tmp_path):
    file = tmp_path / "resources.yaml"
    known = [each for each in rendered if each["kind"] not in CUSTOM]
    file.write_text(yaml.safe_dump_all(known))
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "kubernetes-validate", "--strict", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert known


def test_an_unknown_field_would_be_refused(tmp_path):
    (edge,) = of(render(values.edge()), "StatefulSet").values()
    edge["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(edge))
    command = [ENVIRONMENT / "bin" / "kubernetes-validate", "--strict", tmp_path / "broken.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "livenesProbe" in done.stdout + done.stderr


def test_names_are_unique_and_nothing_is_a_secret(rendered):
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered]
    assert len(set(names)) == len(names)
    assert "Secret" not in {kind for kind, _ in names}


def test_the_files_are_read_by_the_parts(rendered, tmp_path, monkeypatch):
    for name in ("DATABASE_PASSWORD", "KAFKA_PASSWORD", "AUDITOR_PASSWORD", "HEADRACE_INSTANCE"):
        monkeypatch.setenv(name, "given")
    for resource in of(rendered, "ConfigMap").values():
        ((name, text),) = resource["data"].items()
        path = tmp_path / name
        path.write_text(text)
        assert load(path, FILES[name])


def test_containers_have_no_rights(rendered):
    for name, pod in pods(rendered):
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 10001), name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.get("automountServiceAccountToken") is False or pod["serviceAccountName"] == "spark"
        for container in pod.get("initContainers", []) + pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"], name


def test_mounts_and_volumes_fit(rendered):
    for resource in rendered:
        for name, pod in pods([resource]):
            claims = {each["metadata"]["name"] for each in resource["spec"].get("volumeClaimTemplates", [])}
            volumes = {volume["name"] for volume in pod["volumes"]} | claims
            for container in pod.get("initContainers", []) + pod["containers"]:
                mounted = {mount["name"] for mount in container["volumeMounts"]}
                assert mounted == volumes, name


def test_probes_ask_the_port_that_the_file_opens(rendered):
    files = {name: "".join(each["data"].values()) for name, each in of(rendered, "ConfigMap").items()}
    for name, resource in of(rendered, "StatefulSet").items():
        (container,) = resource["spec"]["template"]["spec"]["containers"]
        assert "--hold" in container["args"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert f'listen = "0.0.0.0:{ports["metrics"]}"' in files[name]
        asked = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert asked.pop("readinessProbe") == {"path": "/health/ready", "port": "metrics"}
        assert list(asked.values()) == [{"path": "/health/live", "port": "metrics"}] * 2


@pytest.mark.parametrize("name", ["region", "edge"])
def test_nothing_connects_into_a_region(name):
    resources = render(values.ALL[name])
    (policy,) = of(resources, "NetworkPolicy").values()
    assert "Ingress" in policy["spec"]["policyTypes"]
    # Metrics for whom the values name; nothing else.
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == (["metrics"] if name == "region" else [])
    selected = policy["spec"]["podSelector"]["matchLabels"].items()
    for resource in of(resources, "StatefulSet").values():
        assert selected <= resource["spec"]["template"]["metadata"]["labels"].items()


def test_bridges_keep_their_names_and_share_a_budget():
    resources = render(values.bridge(replicas=3, autoscaling={"enabled": False}))
    (bridges,) = of(resources, "StatefulSet").values()
    assert bridges["spec"]["replicas"] == 3
    (container,) = bridges["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert given["HEADRACE_INSTANCE"] == "$(POD_NAMESPACE).$(POD_NAME)"
    assert list(given).index("POD_NAME") < list(given).index("HEADRACE_INSTANCE")
    (budget,) = of(resources, "PodDisruptionBudget").values()
    assert budget["spec"]["maxUnavailable"] == 1
    # The autoscaler's number is not overwritten by the next upgrade.
    scaled = of(render(values.everything()), "StatefulSet")["other-bridge"]
    assert "replicas" not in scaled["spec"]


def test_init_may_have_another_user_than_the_bridges():
    bridges = of(render(values.everything()), "StatefulSet")["other-bridge"]["spec"]["template"]["spec"]
    secrets = [
        each["valueFrom"]["secretKeyRef"]["name"]
        for container in (*bridges["initContainers"], *bridges["containers"])
        for each in container["env"]
        if each["name"] == "PASSWORD"
    ]
    assert secrets == ["creator", "some"]


def test_a_change_of_the_file_alone_starts_pods_again():
    def annotations(given):
        (value,) = of(render(given), "StatefulSet").values()
        return value["spec"]["template"]

    before = annotations(values.edge())
    watched = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    assert before == annotations(values.edge() | watched | {"networkPolicy": {"enabled": False}})
    # V13: policies that let nobody read metrics go with no monitor
    with pytest.raises(HelmError, match="metricsFrom"):
        render(values.edge() | watched)
    assert before != annotations(values.edge(configuration=values.EDGE + "[spool]\nmegabytes = 1\n"))


def test_the_alerts_are_those_of_infra_monitoring():
    folder = ROOT / "infra" / "monitoring" / "alerts"
    groups = {file.stem: yaml.safe_load(file.read_text())["groups"] for file in folder.iterdir()}
    everything = [*groups["headquarters"], *groups["lake"], *groups["region"]]
    for name, expected in {
        "region": groups["region"],
        "headquarters": [*groups["headquarters"], *groups["lake"]],
        "everything": everything,
    }.items():
        (rule,) = of(render(values.ALL[name]), "PrometheusRule").values()
        assert sorted(rule["spec"]["groups"], key=str) == sorted(expected, key=str)


def test_v11_the_console_shows_prometheus_the_lake():
    """V11: the chart had no console, so nobody was warned of what the lake lacks."""
    resources = render(values.everything())
    console = of(resources, "Deployment")["other-console"]["spec"]["template"]
    (container,) = console["spec"]["containers"]
    words = container["args"]
    addresses = [word.removeprefix("--at=") for word in words if word.startswith("--at=")]
    assert addresses == [f"other-bridge-{number}.other-bridge-pods:9188" for number in range(4)]
    # The console's own checks: what it refuses ends it at the start.
    names = {option for word in words[1:] if (option := word.partition("=")[0].removeprefix("--"))}
    assert names <= {name for each in console_command.params for name in (each.opts[0].removeprefix("--"),)}
    hosts = [word for word in words if word.startswith("--host=")]
    assert {"--host=$(POD_ADDRESS)", "--host=other-console.headrace.svc", "--host=console.example"} <= set(hosts)
    token = {"secretKeyRef": {"name": "console", "key": "text"}}
    assert {"name": "CONSOLE_TOKEN", "valueFrom": token} in container["env"]
    # Prometheus finds it and gives the token; it may ask the bridges.
    monitor = of(resources, "ServiceMonitor")["other-console"]["spec"]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "console", "key": "text"}
    service = of(resources, "Service")["other-console"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= console["metadata"]["labels"].items()
    policy = of(resources, "NetworkPolicy")["other-bridge"]["spec"]["ingress"][-1]
    assert policy["from"][0]["podSelector"]["matchLabels"].items() <= console["metadata"]["labels"].items()


def test_nothing_asked_for_makes_nothing():
    assert render({}) == []


def without(tree, *path):
    """Return a copy of values without one of them."""
    copy = json.loads(json.dumps(tree))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return copy


CLEAR = 'password = "secret"\n[interconnect]'
REFUSED = {
    "an image": (without(values.edge(), "images"), "images.edge.repository is empty: name your registry's image"),
    "an edge's file": (without(values.edge(), "edges", "bank", "configuration"), "missing property 'configuration'"),
    "an empty file": (values.edge(configuration=""), "edges.bank.configuration is empty: give the file"),
    "a bridge's file": (without(values.bridge(), "bridge", "configuration"), "bridge.configuration is empty"),
    "a lake's file": (without(values.lake(), "lake", "configuration"), "lake.configuration is empty"),
    "a console's token": (
        {**values.lake(), **values.bridge(), "console": {"enabled": True}},
        "console.token.secret is empty: name the Secret",
    ),
    "a console's bridges": (values.lake() | {"console": {"enabled": True}}, "needs bridge.enabled and lake.enabled"),
    "streams to maintain": (values.lake(maintain={"streams": []}), "lake.maintain.streams is empty: name the streams"),
    "a Secret of a variable": (
        values.edge(configuration=values.EDGE.replace('"postgres"', '"env:DB_USER"')),
        "refers to the variable DB_USER: name its Secret in edges.bank.environment",
    ),
    "a Secret of files": (
        values.edge(configuration=values.EDGE + '[policy]\nhash_key = "file:/secrets/hashes/key"\n'),
        "refers to files in /secrets/hashes: name their Secret in edges.bank.secrets",
    ),
    "a key of a Secret": (values.edge(environment={"A": {"secret": "some"}}), "missing property 'key'"),
    "a reference in place of a secret": (
        values.edge(configuration=values.EDGE.replace("[interconnect]", CLEAR)),
        "edges.bank.configuration has a secret in the clear (password)",
    ),
    "the port of probes": (
        values.edge(configuration=values.EDGE.replace("0.0.0.0:9187", "127.0.0.1:9187")),
        'edges.bank.configuration has no [metrics] listen = "0.0.0.0:9187": the probes ask it',
    ),
    "the volume": (
        values.edge(configuration=values.EDGE.replace("/var/lib/headrace/state", "/var/lib/other")),
        'has no [state] folder = "/var/lib/headrace/state": the volume is there',
    ),
    "a known field": (values.bridge(replcas=2), "additional properties 'replcas' not allowed"),
    "a number": (values.bridge(replicas="two"), "got string, want integer"),
    "a schedule": (values.lake(verify={"schedule": "daily"}), "/lake/verify/schedule"),
    "metrics to scale by": (
        values.bridge(autoscaling={"enabled": True, "cpu": 0}),
        "autoscaling is enabled with neither cpu nor metrics",
    ),
    "room between least and most": (
        values.bridge(autoscaling={"enabled": True, "minReplicas": 5}),
        "minReplicas (5) is more than maxReplicas (4)",
    ),
    "a name that is short enough": (
        {
            "images": values.IMAGES,
            "fullnameOverride": "a" * 40,
            "edges": {"jakarta-bank": {"configuration": values.EDGE}},
        },
        "is longer than 52 characters",
    ),
}


@pytest.mark.parametrize("missing", REFUSED)
def test_missing_and_wrong_values_are_refused_with_what_to_do(missing):
    given, message = REFUSED[missing]
    with pytest.raises(HelmError) as refused:
        render(given)
    assert message in str(refused.value)
    assert '"secret"' not in str(refused.value)


def test_the_schema_knows_every_value():
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load(Path(CHART / "values.yaml").read_text())
    assert defaults.keys() == schema["properties"].keys() - {"global"}
