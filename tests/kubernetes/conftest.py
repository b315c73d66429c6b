"""An API server for the run, with Strimzi's definitions and those of the Prometheus operator that the chart's resources need."""

import pytest

from tests.kubernetes import strimzi
from tests.kubernetes.cluster import SETUP, Cluster
from tests.rules.waiting import eventually


def loose(group: str, version: str, kind: str) -> dict:
    """Return a definition that takes any fields: of an operator whose own definitions cannot be had."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Yield a running API server with the definitions of custom resources."""
    with Cluster(tmp_path_factory.mktemp("kubernetes")) as running:
        files = [f"--filename={path}" for path in strimzi.definitions(SETUP / "strimzi")]
        # Too large for the annotation that a client-side apply leaves.
        running.kubectl("apply", "--server-side", *files)
        running.apply(*(loose("monitoring.coreos.com", "v1", kind) for kind in ("ServiceMonitor", "PrometheusRule")))
        kinds = "kafkas", "kafkatopics", "kafkausers", "kafkabridges", "kafkamirrormaker2s", "servicemonitors"
        for kind in kinds:
            eventually(lambda kind=kind: running.kubectl("get", kind) or True, saying=f"{kind} are served")
        yield running
