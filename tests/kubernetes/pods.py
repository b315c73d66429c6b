"""Pods that the chart renders, run for real by `podman kube play`, in the host's network: what a kubelet does, on this machine.

Podman 4.3 runs pods, not StatefulSets, so a pod is made here as the StatefulSet's controller makes its first one. It also knows
less than a kubelet: `metadata.namespace` and `$(NAME)` in a variable are put in here, Secrets of files become ConfigMaps, and the
test asks what probes ask.
"""

import base64
import copy
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

import yaml

from tests.containers.engine import Podman

NAMESPACE = "headrace"


def pod_of(stateful_set: dict, files: dict[str, dict[str, str]]) -> list[dict]:
    """Return what podman runs: claims, ConfigMaps in place of Secrets of files, and the StatefulSet's first pod.

    Args:
        stateful_set: as the chart renders it.
        files: the content of the Secrets that are mounted, by name.
    """
    name = f"{stateful_set['metadata']['name']}-0"
    spec = copy.deepcopy(stateful_set["spec"]["template"]["spec"])
    spec["hostNetwork"] = True
    # What spreads pods over nodes is not podman's.
    spec.pop("topologySpreadConstraints", None)
    made = []
    for claim in stateful_set["spec"].get("volumeClaimTemplates", []):
        volume = f"{claim['metadata']['name']}-{name}"
        made.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": volume}, "spec": claim["spec"]}
        )
        spec["volumes"].append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": volume}})
    for volume in spec["volumes"]:
        if secret := volume.pop("secret", None):
            held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{volume['name']}"}}
            made.append(held | {"data": files[secret["secretName"]]})
            volume["configMap"] = {"name": held["metadata"]["name"]}
    for container in spec.get("initContainers", []) + spec["containers"]:
        # In the host's network there is nothing to map.
        for field in ("ports", "startupProbe", "livenessProbe", "readinessProbe"):
            container.pop(field, None)
        _put_in(container["env"], {"metadata.name": name, "metadata.namespace": NAMESPACE})
    # It removes one that is of its usual type, `once`, sometimes before it has noticed that it ended, and fails.
    metadata = {"name": name, "annotations": {"io.podman.annotations.init.container.type": "always"}}
    return [*made, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}]


def _put_in(variables: list[dict], fields: dict[str, str]) -> None:
    """Replace references to the pod's fields and to earlier variables by what they mean."""
    known: dict[str, str] = {}
    for each in variables:
        if field := each.get("valueFrom", {}).get("fieldRef"):
            del each["valueFrom"]
            each["value"] = fields[field["fieldPath"]]
        if "value" in each:
            each["value"] = re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], each["value"])
            known[each["name"]] = each["value"]


class Pods:
    """Pods by name; `with` ends them, and removes what they kept."""

    def __init__(self, podman: Podman, folder: Path) -> None:
        self.podman = podman
        self._folder = folder
        self._files: dict[str, Path] = {}
        self._secrets: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._files):
            self.remove(name)
            for resource in yaml.safe_load_all(self._files[name].read_text()):
                if resource["kind"] != "Pod":
                    self.podman.run("volume", "rm", "--force", resource["metadata"]["name"], check=False)
        for secret in self._secrets:
            self.podman.run("secret", "rm", secret, check=False)

    def add_secret(self, name: str, **values: str) -> None:
        """Make a Secret for variables, in the form that podman keeps."""
        held = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.podman.run("secret", "rm", name, check=False)
        self.podman.run("secret", "create", name, "-", given=json.dumps(held))
        self._secrets.append(name)

    def play(self, resources: list[dict]) -> str:
        """Start a pod with its claims and ConfigMaps; return its name."""
        name = resources[-1]["metadata"]["name"]
        self._files[name] = self._folder / f"{name}.yaml"
        self._files[name].write_text(yaml.safe_dump_all(resources))
        self.podman.run("kube", "play", self._files[name])
        return name

    def remove(self, name: str) -> None:
        """End a pod, as a drained node does; its volumes stay."""
        self.podman.run("pod", "stop", "--time=30", name, check=False)
        self.podman.run("pod", "rm", "--force", name, check=False)

    def replace(self, name: str) -> None:
        """End a pod and start it again with the volumes that it had."""
        self.remove(name)
        kept = list(yaml.safe_load_all(self._files[name].read_text()))
        # Podman makes a claim's volume once; the pod finds it by name.
        again = [each for each in kept if each["kind"] != "PersistentVolumeClaim"]
        file = self._folder / f"{name}-again.yaml"
        file.write_text(yaml.safe_dump_all(again))
        self.podman.run("kube", "play", file)

    def logs(self, name: str, container: str) -> str:
        return self.podman.run("logs", f"{name}-{container}", check=False)

    def inspect(self, name: str, container: str) -> dict:
        return self.podman.inspect(f"{name}-{container}")


def answer(port: int, path: str) -> tuple[int, str]:
    """Return what a part answers to a probe: the status and the text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
