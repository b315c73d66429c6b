"""The Helm chart and its examples without Helm (make test-kubernetes has it): versions, values, the parts' files."""

import json
import re
from pathlib import Path

import pytest
import yaml

from headrace import __version__
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from tests.bridge import security_lists

ROOT = Path(__file__).parents[3]
CHART, EXAMPLES = ROOT / "infra" / "kubernetes" / "headrace", ROOT / "infra" / "kubernetes" / "examples"


def test_the_chart_has_the_version_of_the_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_comments_of_the_values_have_every_field_of_an_edge():
    schema = json.loads((CHART / "values.schema.json").read_text())["$defs"]["edge"]["properties"]
    commented = set(re.findall(r"[\w.]+", (CHART / "values.yaml").read_text().split("edges: {}")[0]))
    for name in schema:
        assert any(each.split(".")[0] == name for each in commented), name


def configurations():
    for path in sorted(EXAMPLES.glob("*-values.yaml")):
        values = yaml.safe_load(path.read_text())
        for name, edge in (values.get("edges") or {}).items():
            yield pytest.param(EdgeFile, edge["configuration"], id=f"{path.stem} {name}")
        for part, kind in (("bridge", BridgeFile), ("lake", LakeFile)):
            if part in values:
                yield pytest.param(kind, values[part]["configuration"], id=f"{path.stem} {part}")


@pytest.mark.parametrize(("kind", "text"), list(configurations()))
def test_files_in_the_examples_are_right(kind, text, tmp_path, monkeypatch):
    for name in re.findall(r'"env:(\w+)"', text):
        monkeypatch.setenv(name, "given")
    (tmp_path / "part.toml").write_text(text)
    assert load(tmp_path / "part.toml", kind).profile == "production"


def example(name):
    return [each for each in yaml.safe_load_all((EXAMPLES / name).read_text()) if each]


def lists():
    """Return what each KafkaUser of the example may do, in the form of the documents' lists."""
    kinds = {"transactionalId": "transactional_id"}
    operations = {"DescribeConfigs": "describe_configs"}
    return {
        user["metadata"]["name"]: {
            (
                kinds.get(rule["resource"]["type"], rule["resource"]["type"]),
                rule["resource"].get("name"),
                operations.get(each, each.lower()),
                rule["resource"].get("patternType") == "prefix",
            )
            for rule in user["spec"]["authorization"]["acls"]
            for each in rule["operations"]
        }
        for user in example("strimzi.yaml")
        if user["kind"] == "KafkaUser"
    }


def test_users_of_kafka_have_the_lists_of_the_documents():
    given = lists()
    requests = {("topic", "headrace.requests", "read", False), ("topic", "headrace.answers", "write", False)}
    assert given["headrace-bridge"] == {tuple(each) for each in security_lists.bridge_run("bank")} | requests
    assert given["headrace-init"] == {tuple(each) for each in security_lists.bridge_init("bank")}
    assert given["headrace-lake"] == {tuple(each) for each in security_lists.lake("bank", "bank")}
    reverse = {("topic", "headrace.requests", "write", False), ("topic", "headrace.answers", "read", False)}
    assert given["headrace-ask"] == reverse


def test_the_http_bridge_lets_nobody_in_but_pods_with_a_label_of_their_own():
    """S17: it asks its callers for nothing, and any pod could read the stream."""
    (http,) = (each for each in example("strimzi.yaml") if each["kind"] == "KafkaBridge")
    (policy,) = (each["spec"] for each in example("strimzi.yaml") if each["kind"] == "NetworkPolicy")
    assert policy["podSelector"]["matchLabels"] == {
        "strimzi.io/kind": "KafkaBridge",
        "strimzi.io/cluster": http["metadata"]["name"],
    }
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": http["spec"]["http"]["port"]}]
    assert [list(each) for each in rule["from"]] == [["podSelector"]]


def test_examples_refer_to_each_other():
    secrets = {each["spec"]["secretName"] for each in example("certificates.yaml") if each["kind"] == "Certificate"}
    users = {each["metadata"]["name"] for each in example("strimzi.yaml") if each["kind"] == "KafkaUser"}
    elsewhere = {"kafka-cluster-ca-cert", "bank-db-authority", "jakarta-bank-database", "london-bank-authority"}
    headquarters, region = example("headquarters-values.yaml")[0], example("region-values.yaml")[0]
    for part in (headquarters["bridge"], headquarters["lake"], *region["edges"].values()):
        named = {*part["secrets"].values(), *(each["secret"] for each in part["environment"].values())}
        assert named <= secrets | users | elsewhere | {"london-bank-auditor"}

    connectors = {
        each["spec"]["routingKey"] for each in example("skupper-headquarters.yaml") if each["kind"] == "Connector"
    }
    listeners = [each["spec"] for each in example("skupper-region.yaml") if each["kind"] == "Listener"]
    assert {each["routingKey"] for each in listeners} == connectors
    (bridge,) = [each["spec"] for each in example("certificates.yaml") if each["metadata"]["name"] == "bridge"]
    assert {f"{each['host']}.headrace.svc" for each in listeners} <= set(bridge["dnsNames"])
    # No site of a region lets others link to it.
    (site,) = [each["spec"] for each in example("skupper-region.yaml") if each["kind"] == "Site"]
    assert "linkAccess" not in site
