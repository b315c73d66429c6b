"""One call of Helm, in the environment of its own library: a request as JSON on standard input, the answer on standard output.

Started by tests/kubernetes/helm.py with the Python of .setup/kubernetes, which has helm_python and nothing of ours.
"""

import json
import sys

import helm_python as helm


def answer(request):
    """Return what Helm answers, or its error."""
    chart, values = request["chart"], helm.values_from_yaml(request["values"])
    action, options = request["action"], request["options"]
    try:
        if action == "lint":
            return helm.lint(chart, values, strict=True)
        if action == "render":
            with helm.Chart.load(chart) as loaded:
                loaded.validate_schema(values)
                return loaded.render(values, **options)
        with helm.Config(kubeconfig_path=request["kubeconfig"], namespace=options.pop("namespace")) as config:
            call = getattr(config, action)
            return call(chart, values=values, **options) if action in {"install", "upgrade"} else call(**options)
    except helm.HelmError as error:
        return {"error": str(error)}


json.dump(answer(json.load(sys.stdin)), sys.stdout)
