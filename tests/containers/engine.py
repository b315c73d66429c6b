"""Podman as the tests use it: a base image of Debian's packages, the project's images, servers in place of foreign images.

Guarantees that it needs no image registry and no systemd, and that a stack that was started is gone afterwards, with its volumes;
images stay for the next run. Assumes root, podman, runc and mmdebstrap (docs/developing.md).
"""

import json
import os
import resource
import shlex
import subprocess
import sysconfig
from pathlib import Path

from headrace.process import jar_folder as jars

ROOT = Path(__file__).parents[2]
SERVERS = Path(__file__).parent / "servers"
PARTS = ("edge", "bridge", "lake")
#: What is in place of the official images, by the variable of docker-compose.yml, and what its image is made of.
FOREIGN = {"POSTGRES_IMAGE": "postgres", "KAFKA_IMAGE": "kafka", "ARTEMIS_IMAGE": "artemis"}
BASE, JAVA = "localhost/headrace-base", "localhost/headrace-java"
_BUILD_SECONDS = 3600


def _configuration() -> str:
    """Return containers.conf: a run time that works without systemd's cgroups, limits that this process may give."""
    limits = {"nofile": min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]), "nproc": 4096}
    given = ", ".join(f'"{name}={most}:{most}"' for name, most in limits.items())
    return (
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'[containers]\nlog_driver = "k8s-file"\ndefault_ulimits = [{given}]\n'
    )


class Podman:
    """Commands of podman and podman-compose, with settings in a folder of the test's own."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        settings = scratch / "containers.conf"
        settings.write_text(_configuration())
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(settings),
            "DISABLE_HC_SYSTEMD": "true",
            **{name: f"localhost/headrace-test-{server}" for name, server in FOREIGN.items()},
        }

    def run(self, *words: object, check: bool = True, given: str | None = None, seconds: float = 300) -> str:
        """Run `podman WORDS`; return what it printed, both ways where it may fail."""
        done = subprocess.run(
            ["podman", *map(str, words)],
            env=self.environment,
            input=given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if check else subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"podman {shlex.join(map(str, words))}: {done.stderr[-4000:]}"
        return done.stdout

    def inspect(self, name: str) -> dict:
        (found,) = json.loads(self.run("inspect", name))
        return found

    def image_exists(self, name: str) -> bool:
        return subprocess.run(["podman", "image", "exists", name], env=self.environment, check=False).returncode == 0

    def build_all(self) -> None:
        """Build the base, the project's images, and the servers' that stand in for foreign ones; quick when nothing changed."""
        if not self.image_exists(BASE):
            archive = self.scratch / "base.tar"
            packages = "--include=python3,python3-venv,ca-certificates"
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, "bookworm", archive], check=True)
            self.run("import", "--quiet", archive, BASE, seconds=600)
            archive.unlink()
        lake = ROOT / "infra" / "images" / "lake.Dockerfile"
        self._build(lake, JAVA, ROOT, "--target", "java")
        for part in PARTS:
            certificates = [f"--volume={path}:{path}:ro" for path in _PIP if path.exists()]
            self._build(
                ROOT / "infra" / "images" / f"{part}.Dockerfile",
                f"localhost/headrace-{part}",
                ROOT,
                *certificates,
                f"--volume={jars()}:/jars:ro",
            )
        packages = sysconfig.get_path("purelib")
        sources = {"postgres": packages, "kafka": jars() / "kafka", "artemis": jars() / "artemis"}
        for server, source in sources.items():
            name, base = f"localhost/headrace-test-{server}", BASE if server == "postgres" else JAVA
            self._build(SERVERS / f"{server}.Dockerfile", name, SERVERS, f"--volume={source}:/from:ro", base=base)

    def _build(self, file: Path, name: str, context: Path, *options: str, base: str = BASE) -> None:
        # What this machine reaches, and how, is what the build reaches.
        host = ["--network=host", "--volume=/etc/apt:/etc/apt:ro"]
        words = ["build", "--quiet", "--format=docker", *host, *options, f"--build-arg=BASE={base}"]
        self.run(*words, f"--file={file}", f"--tag={name}", context, seconds=_BUILD_SECONDS)


#: Where pip finds its settings and the authorities that it trusts.
_PIP = (Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt"), Path("/opt/wheels"))
