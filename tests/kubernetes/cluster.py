"""A Kubernetes API server with its etcd, as the tests use it: no nodes, so it admits and keeps resources, and runs nothing.

Guarantees that both listen on this machine's loopback address alone and are gone at the end, with all that they kept. Assumes the
programs of `make test-kubernetes` in .setup/kubernetes.
"""

import json
import os
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from infra.local.server import free_port
from tests.kubernetes import api_server
from tests.kubernetes.helm import ENVIRONMENT, ROOT
from tests.rules.waiting import eventually

SETUP = ROOT / ".setup" / "kubernetes"
ETCD = SETUP / "etcd" / "usr" / "bin" / "etcd"
_TOKEN = "only-for-this-test"
_START_SECONDS = 180


class Cluster:
    """Starts with `with`; `kubectl` and Helm reach it by `kubeconfig`, as an administrator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._port = free_port()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._launch("etcd", self._etcd())
            self._launch("apiserver", self._api_server())
            self._write_kubeconfig()
            eventually(self._ready, _START_SECONDS, every=0.5, saying="the API server is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Run kubectl; return what it printed, or raise AssertionError with what it complained of."""
        done = self._kubectl(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *words: str, given: str) -> str:
        """Run a kubectl that has to fail; return what it complained of."""
        done = self._kubectl(*words, given=given)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def apply(self, *resources: dict, namespace: str = "default", validate: str = "strict") -> str:
        """Have the server admit resources, unknown fields refused, and keep them."""
        words = ("apply", "--server-side", f"--validate={validate}", f"--namespace={namespace}", "--filename=-")
        return self.kubectl(*words, given=yaml.safe_dump_all(resources))

    def get(self, kind: str, namespace: str) -> dict[str, dict]:
        """Return the resources of a kind by name."""
        listed = json.loads(self.kubectl("get", kind, f"--namespace={namespace}", "--output=json"))
        return {each["metadata"]["name"]: each for each in listed["items"]}

    def _kubectl(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ENVIRONMENT / "bin" / "kubectl", f"--kubeconfig={self.kubeconfig}", *words],
            input=given,
            env=os.environ | {"HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def _launch(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder))

    def _etcd(self) -> list[str]:
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        return [
            str(ETCD),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # What is lost with this machine was worth nothing.
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        key = self.folder / "accounts.key"
        made = rsa.generate_private_key(65537, 2048)
        encoding = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        key.write_bytes(made.private_bytes(*encoding, serialization.NoEncryption()))
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
        for secret in (key, tokens):
            secret.chmod(0o600)
        return [
            str(SETUP / "apiserver" / f"kube-apiserver-{api_server.VERSION}"),
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            # Its controller, which makes a namespace's account, does not run.
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kubernetes.invalid",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]

    def _write_kubeconfig(self) -> None:
        server = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.kubeconfig.chmod(0o600)

    def _ready(self) -> bool:
        for process in self._started:
            assert process.poll() is None, f"{process.args[0]} ended: see the logs in {self.folder}"
        # Its certificate is one that it made for itself just now.
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        asked = urllib.request.Request(
            f"https://127.0.0.1:{self._port}/readyz", headers={"Authorization": f"Bearer {_TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=5, context=unverified) as answer:
            return answer.status == 200
