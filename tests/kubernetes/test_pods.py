"""The pods of the chart run: a change of PostgreSQL goes through an edge's pod and a bridge's pod into Kafka, once.

The images are those of this tree, built as for `make test-containers`; HEADRACE_IMAGES=as-they-are takes those that are there.
"""

import json
import os
import socket
from contextlib import closing

import pytest

from infra.local.server import free_port
from tests.containers.engine import Podman
from tests.kafka.reading import values as records
from tests.kubernetes import values
from tests.kubernetes.helm import render
from tests.kubernetes.pods import Pods, answer, pod_of
from tests.rules.waiting import eventually

#: The ports of probes, which the chart fixes; pods in the host's network need them for themselves.
EDGE_PORT, BRIDGE_PORT = 9187, 9188
TLS = """
authority = "/secrets/certificate/ca.crt"
certificate = "/secrets/certificate/tls.crt"
key = "/secrets/certificate/tls.key"
"""


@pytest.fixture
def pods(tmp_path):
    """Yield podman with the project's images."""
    for port in (EDGE_PORT, BRIDGE_PORT):
        with closing(socket.socket()) as probe:
            assert probe.connect_ex(("127.0.0.1", port)), f"port {port} is taken: the pods need it"
    podman = Podman(tmp_path)
    if os.environ.get("HEADRACE_IMAGES") != "as-they-are":
        podman.build_all()
    with Pods(podman, tmp_path) as running:
        yield running


def given(database, kafka, port):
    """Return values for both parts: mutual TLS between them, the database's password in a Secret."""
    edge = f"""
        [source]
        name = "jakarta/bank"
        [source.postgresql]
        host = "127.0.0.1"
        port = {database.postgres.port}
        database = "{database.name}"
        user = "postgres"
        password = "env:DATABASE_PASSWORD"
        slot = "{database.name}"
        publication = "{database.name}"
        [interconnect]
        url = "amqps://localhost:{port}"
        {TLS}
        [state]
        folder = "/var/lib/headrace/state"
        [metrics]
        listen = "0.0.0.0:{EDGE_PORT}"
    """
    bridge = f"""
        [kafka]
        bootstrap = "{kafka.bootstrap}"
        prefix = "{database.name}"
        [interconnect]
        listen = "0.0.0.0:{port}"
        {TLS}
        [sharing]
        instance = "env:HEADRACE_INSTANCE"
        [metrics]
        listen = "0.0.0.0:{BRIDGE_PORT}"
        [streams.{database.name}]
        sources = {{ "jakarta/bank" = [0] }}
    """
    password = {"DATABASE_PASSWORD": {"secret": "headrace-test-database", "key": "password"}}
    both = values.edge(configuration=edge, environment=password, secrets={"certificate": "edge-certificate"})
    listening = {"service": {"port": port}, "secrets": {"certificate": "bridge-certificate"}}
    both["bridge"] = values.bridge(configuration=bridge, **listening)["bridge"]
    both["images"] = {name: image | {"tag": "latest"} for name, image in values.IMAGES.items()}
    # Podman asks registries otherwise.
    both["images"]["pullPolicy"] = "Never"
    return both


def mounted(certificates, name):
    """Return the files of a Secret as cert-manager writes it."""
    ours = certificates / "ours"
    held = {"ca.crt": ours / "authority.pem", "tls.crt": ours / f"{name}.pem", "tls.key": ours / f"{name}.key"}
    return {file: path.read_text() for file, path in held.items()}


def ready(port):
    status, text = answer(port, "/health/ready")
    assert status == 200, text
    return True


def test_a_change_arrives_in_kafka_once_through_the_pods_of_the_chart(pods, database, kafka, certificates):
    database.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text)")
    pods.add_secret("headrace-test-database", password="any")
    resources = render(given(database, kafka, free_port()))
    sets = {each["metadata"]["name"]: each for each in resources if each["kind"] == "StatefulSet"}
    maps = {each["metadata"]["name"]: each for each in resources if each["kind"] == "ConfigMap"}
    secrets = {
        "edge-certificate": mounted(certificates, "jakarta-bank"),
        "bridge-certificate": mounted(certificates, "bridge"),
    }

    # the bridge's init container makes the topic, and it is ready before any edge is there
    bridge = pods.play([maps["headrace-bridge"], *pod_of(sets["headrace-bridge"], secrets)])
    eventually(lambda: ready(BRIDGE_PORT), 120, every=0.5, saying="the bridge is ready")
    # the edge's makes publication, slot and checkpoint
    edge = pods.play([maps["headrace-edge-bank"], *pod_of(sets["headrace-edge-bank"], secrets)])
    eventually(lambda: ready(EDGE_PORT), 120, every=0.5, saying="the edge is ready")
    assert [answer(port, "/health/live")[0] for port in (EDGE_PORT, BRIDGE_PORT)] == [200, 200]

    def arrived():
        result = [json.loads(value) for value in records(kafka.bootstrap, database.name) if value]
        return [each["after"]["id"] for each in result if each.get("op") == "c"]

    database.execute("INSERT INTO accounts SELECT id, 'somebody' FROM generate_series(1, 100) id")
    eventually(lambda: arrived() == list(range(1, 101)), 60, every=0.5, saying="the rows are in Kafka")
    for name, container in ((edge, "edge"), (bridge, "bridge")):
        running = pods.inspect(name, container)
        assert running["Config"]["User"] == "10001:10001"
        assert running["HostConfig"]["ReadonlyRootfs"]
        assert not running["EffectiveCaps"]

    # a pod that is replaced finds its volume: nothing is made again, nothing is lost or doubled
    slot = f"SELECT slot_name, restart_lsn IS NOT NULL FROM pg_replication_slots WHERE database = '{database.name}'"
    assert database.execute(slot) == [(database.name, True)]
    pods.remove(edge)
    database.execute("INSERT INTO accounts VALUES (101, 'while it was away')")
    pods.replace(edge)
    pods.replace(bridge)
    eventually(lambda: arrived() == list(range(1, 102)), 120, every=0.5, saying="the row is in Kafka")
    eventually(lambda: ready(EDGE_PORT), 60, every=0.5, saying="the edge is ready again")


def test_a_pod_that_needs_an_operator_stays_up_and_not_ready(pods, database, kafka, certificates):
    # without init there is no topic
    both = given(database, kafka, free_port())
    both["bridge"]["init"] = {"enabled": False}
    resources = render(both)
    (held,) = [each for each in resources if each["kind"] == "StatefulSet" and "bridge" in each["metadata"]["name"]]
    (its,) = [each for each in resources if each["kind"] == "ConfigMap" and "bridge" in each["metadata"]["name"]]
    pods.play([its, *pod_of(held, {"bridge-certificate": mounted(certificates, "bridge")})])

    def reason():
        status, text = answer(BRIDGE_PORT, "/health/ready")
        return status == 503 and "needs an operator" in text and database.name in text

    eventually(reason, 120, every=0.5, saying="it shows why it is not ready")
    assert answer(BRIDGE_PORT, "/health/live")[0] == 200
