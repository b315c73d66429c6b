"""The chart and the examples at a real API server: every field admitted strictly, install, upgrade, rollback, refusals."""

import itertools
import json

import pytest
import yaml

from tests.kubernetes import values
from tests.kubernetes.helm import EXAMPLES, HelmError, call, render

_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster):
    """Return a fresh namespace."""
    name = f"n{next(_numbers)}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def helm(cluster, namespace):
    """Return a function that has Helm do something in the namespace."""

    def act(action, given=None, **options):
        return call(action, given, kubeconfig=str(cluster.kubeconfig), name="headrace", namespace=namespace, **options)

    return act


def strimzi():
    return list(yaml.safe_load_all((EXAMPLES / "strimzi.yaml").read_text()))


@pytest.mark.parametrize("name", values.ALL)
def test_the_server_admits_every_resource_of_the_chart(cluster, namespace, name):
    resources = render(values.ALL[name], namespace=namespace)
    admitted = cluster.apply(*resources, namespace=namespace)
    assert admitted.count("serverside-applied") == len(resources)


def test_the_server_admits_every_resource_of_strimzi(cluster, namespace):
    resources = strimzi()
    assert cluster.apply(*resources, namespace=namespace).count("serverside-applied") == len(resources)
    assert set(cluster.get("kafkausers", namespace)) >= {"headrace-bridge", "headrace-lake", "headrace-ask"}


@pytest.mark.parametrize(
    "kind", ["Kafka", "KafkaNodePool", "KafkaTopic", "KafkaUser", "KafkaBridge", "KafkaMirrorMaker2"]
)
def test_an_unknown_field_of_strimzi_would_be_refused(cluster, namespace, kind):
    resource = next(each for each in strimzi() if each["kind"] == kind)
    resource["spec"]["replcas"] = 1
    given = json.dumps(resource)
    words = ("apply", "--server-side", "--validate=strict", f"--namespace={namespace}", "--filename=-")
    assert "replcas" in cluster.refusal(*words, given=given)


def test_an_unknown_field_of_a_pod_would_be_refused(cluster, namespace):
    (edge,) = [each for each in render(values.edge(), namespace=namespace) if each["kind"] == "StatefulSet"]
    edge["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    words = ("apply", "--server-side", "--validate=strict", f"--namespace={namespace}", "--filename=-")
    assert "livenesProbe" in cluster.refusal(*words, given=json.dumps(edge))


def test_install_upgrade_and_rollback(cluster, namespace, helm):
    first = values.bridge(replicas=2)
    helm("install", first)
    assert cluster.get("statefulsets", namespace)["headrace-bridge"]["spec"]["replicas"] == 2

    # a new source, more bridges, an edge too
    second = values.bridge(replicas=3, configuration=values.BRIDGE.replace("[0] }", '[0], "london/bank" = [1] }'))
    helm("upgrade", second | {"edges": values.edge()["edges"]})
    upgraded = cluster.get("statefulsets", namespace)
    assert upgraded.keys() == {"headrace-bridge", "headrace-edge-bank"}
    assert upgraded["headrace-bridge"]["spec"]["replicas"] == 3
    assert "london/bank" in cluster.get("configmaps", namespace)["headrace-bridge"]["data"]["bridge.toml"]
    template = upgraded["headrace-bridge"]["spec"]["template"]

    helm("rollback")
    (back,) = cluster.get("statefulsets", namespace).values()
    assert back["spec"]["replicas"] == 2
    assert back["spec"]["template"] != template
    assert "london/bank" not in cluster.get("configmaps", namespace)["headrace-bridge"]["data"]["bridge.toml"]

    helm("uninstall")
    assert not cluster.get("statefulsets,services,configmaps,networkpolicies,poddisruptionbudgets", namespace)


def test_an_upgrade_that_kubernetes_cannot_do_changes_nothing(cluster, namespace, helm):
    helm("install", values.edge(storage={"size": "1Gi"}))
    with pytest.raises(HelmError, match=r"volumeClaimTemplates.*immutable"):
        helm("upgrade", values.edge(storage={"size": "2Gi"}))
    (edge,) = cluster.get("statefulsets", namespace).values()
    (claim,) = edge["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"


def test_missing_values_install_nothing(cluster, namespace, helm):
    with pytest.raises(HelmError, match=r"bridge\.configuration is empty: give the file"):
        helm("install", {"images": values.IMAGES, "bridge": {"enabled": True}})
    assert not cluster.get("statefulsets", namespace)
