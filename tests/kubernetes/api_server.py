"""A Kubernetes API server, built from its Go module once: `python -m tests.kubernetes.api_server FOLDER` (10 to 20 minutes).

Assumes Go and its module proxy. The binary (119 MB) stays in the folder under its version's name.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

VERSION = "1.37.2"
#: The program: what k8s.io/kubernetes builds itself, in a module of its own, because its own is not meant to be installed.
PROGRAM = """package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
"""
#: Modules that k8s.io/kubernetes keeps in its own repository and requires as v0.0.0.
_STAGED = re.compile(r"^\s*(k8s\.io/\S+) v0\.0\.0$", re.MULTILINE)


def _go(folder: Path, *words: str) -> str:
    # Nothing else waits for this build: everybody else's work goes first.
    command = ["nice", "-n", "19", "go", *words]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def _write_module(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    result = json.loads(_go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"))
    staged = sorted(set(_STAGED.findall(Path(result["GoMod"]).read_text())))
    release = f"v0.{VERSION.split('.', 1)[1]}"
    lines = [
        "module headrace.invalid/apiserver",
        f"go {'.'.join(_go(folder, 'env', 'GOVERSION').strip()[2:].split('.')[:2])}",
    ]
    lines.append(f"require k8s.io/kubernetes v{VERSION}")
    lines += [f"replace {module} => {module} {release}" for module in staged]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")
    (folder / "main.go").write_text(PROGRAM)


def build(folder: Path) -> Path:
    """Return the path of kube-apiserver, built unless the folder has it.

    Raises:
        CalledProcessError: Go could not build it; what it printed says why.
    """
    binary = folder / f"kube-apiserver-{VERSION}"
    if not binary.exists():
        module = folder / "module"
        _write_module(module)
        _go(module, "mod", "tidy")
        flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"
        partial = binary.with_suffix(".partial")
        _go(module, "build", "-trimpath", "-ldflags", flags, "-o", str(partial), ".")
        partial.replace(binary)
    return binary


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]).absolute())}\n")
