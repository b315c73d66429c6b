"""A pod of the chart runs: one that needs an operator stays up and shows why.

The images are those of this tree, built as for `make test-containers`; HEADRACE_IMAGES=as-they-are takes those that are there.
"""

import os
import socket
from contextlib import closing

import pytest

from infra.local.ports import free_port
from tests.containers.engine import Podman
from tests.kubernetes import values
from tests.kubernetes.helm import render
from tests.kubernetes.pods import Pods, answer, pod_of
from tests.waiting import eventually

#: The port of probes, which the chart fixes; a pod in the host's network needs it for itself.
BRIDGE_PORT = 9188
TLS = """
authority = "/secrets/certificate/ca.crt"
certificate = "/secrets/certificate/tls.crt"
key = "/secrets/certificate/tls.key"
"""


@pytest.fixture
def pods(tmp_path):
    """Yield podman with the project's images."""
    with closing(socket.socket()) as probe:
        assert probe.connect_ex(("127.0.0.1", BRIDGE_PORT)), f"port {BRIDGE_PORT} is taken: the pod needs it"
    podman = Podman(tmp_path)
    if os.environ.get("HEADRACE_IMAGES") != "as-they-are":
        podman.build_all()
    with Pods(podman, tmp_path) as running:
        yield running


def given(database, kafka, port):
    """Return values for bridges with mutual TLS."""
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
    listening = {"service": {"port": port}, "secrets": {"certificate": "bridge-certificate"}}
    both = values.bridge(configuration=bridge, **listening)
    both["images"] = {name: image | {"tag": "latest"} for name, image in values.IMAGES.items()}
    # Podman asks registries otherwise.
    both["images"]["pullPolicy"] = "Never"
    return both


def mounted(certificates, name):
    """Return the files of a Secret as cert-manager writes it."""
    ours = certificates / "ours"
    held = {"ca.crt": ours / "authority.pem", "tls.crt": ours / f"{name}.pem", "tls.key": ours / f"{name}.key"}
    return {file: path.read_text() for file, path in held.items()}


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
