"""Helm as the tests use it: lint, render, and releases on an API server.

Helm is a library for Python here, in an environment of its own (make test-kubernetes).
"""

import json
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "infra" / "kubernetes" / "headrace"
EXAMPLES = ROOT / "infra" / "kubernetes" / "examples"
#: The environment of tests/kubernetes/requirements.txt.
ENVIRONMENT = ROOT / ".setup" / "kubernetes" / "python"
PROGRAM = Path(__file__).with_name("helm_program.py")


class HelmError(Exception):
    """What Helm answers when it refuses."""


def call(action: str, values: object = None, *, kubeconfig: str = "", **options: object):
    """Return Helm's answer; raise HelmError with its message. `values` are a tree, or the text of a file."""
    text = values if isinstance(values, str) else yaml.safe_dump(values or {})
    request = {
        "action": action,
        "chart": str(CHART),
        "values": text,
        "kubeconfig": kubeconfig,
        "options": options,
    }
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", PROGRAM],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Helm's library may log on standard output too.
    answered = json.loads(done.stdout[done.stdout.index("{") if "{" in done.stdout else 0 :] or "null")
    if isinstance(answered, dict) and answered.get("error"):
        raise HelmError(answered["error"])
    return answered


def render(values: object, name: str = "headrace", namespace: str = "headrace") -> list[dict]:
    """Return the resources that the chart makes of these values."""
    files = call("render", values, name=name, namespace=namespace)
    return [
        resource
        for file, text in sorted(files.items())
        if file.endswith(".yaml")
        for resource in yaml.safe_load_all(text)
        if resource
    ]
