"""One ActiveMQ Artemis broker with the configuration of infra/artemis: made, started, stopped, crashed and started again.

Guarantees that what it accepted survives `kill` and `start` (its journal is synchronised), that the port stays the same, and that
it ends with its owner unless it is detached. Speaks AMQP 1.0 on this machine alone. Used by tests.
"""

import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local.jars import unpacked
from infra.local.server import Server, keep_port, kept_port
from tests.servers import jars

_CONFIGURATION = Path(__file__).resolve().parents[2] / "infra" / "artemis"
#: An AMQP 1.0 header, for SASL: any AMQP broker answers with the same.
_HELLO = b"AMQP\x03\x01\x00\x00"


class Artemis(Server):
    """One broker in a folder. `tls` is the TLS part of its acceptor; without it, it speaks in the clear.

    `users` have a password each and the role of their own name, in addition to those in infra/artemis.
    """

    kind, name = "artemis", "Artemis"
    stop_seconds = 30.0

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        tls: str = "saslMechanisms=PLAIN",
        users: Mapping[str, str] | None = None,
        heap_megabytes: int = 256,
        memory_megabytes: int = 256,
        detached: bool = False,
    ) -> None:
        super().__init__(folder, port=port, log=None, detached=detached)
        self.tls = tls
        self.users = dict(users or {})
        self.heap_megabytes = heap_megabytes
        #: Beyond this much in all queues they go on in files.
        self.memory_megabytes = memory_megabytes

    @property
    def version(self) -> str:
        """The broker's version."""
        return _home().name.rpartition("-")[2]

    def _make(self) -> None:
        if shutil.which("java") is None:
            raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.")

    def _kept_port(self) -> int:
        return kept_port(self.folder)

    def _launch(self, port: int) -> None:
        settings = self.folder / "etc"
        shutil.copytree(_CONFIGURATION, settings, dirs_exist_ok=True)
        keep_port(self.folder, port)
        with (settings / "artemis-users.properties").open("a") as file:
            file.writelines(f"{name}={password}\n" for name, password in self.users.items())
        home = _home()
        options = {
            "artemis.home": home,
            "artemis.instance": self.folder,
            "artemis.instance.etc": settings,
            "artemis.instance.etc.uri": settings.as_uri(),
            "artemis.etc": settings,
            "java.security.auth.login.config": settings / "login.config",
            "headrace.data": self.folder / "data",
            "headrace.host": "127.0.0.1",
            "headrace.port": port,
            "headrace.tls": self.tls,
            "headrace.memory": f"{self.memory_megabytes}M",
            "log4j2.level": "WARN",
            "java.awt.headless": "true",
        }
        self._process.launch(
            [
                "java",
                f"-Xmx{self.heap_megabytes}m",
                "-XX:-UsePerfData",
                # It lives for seconds or minutes, and starts with half the work.
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                *(f"-D{name}={value}" for name, value in options.items()),
                "-cp",
                home / "lib" / "artemis-boot.jar",
                "org.apache.activemq.artemis.boot.Artemis",
                "run",
            ],
            folder=self.folder,
            environment=os.environ,
        )

    def _is_ready(self, port: int) -> bool:
        return self._process.listens_on(port) and self._answers(port)

    def _answers(self, port: int) -> bool:
        """Say whether the broker answers a greeting; with TLS, whether it takes a connection."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            if "sslEnabled=true" in self.tls:
                return True
            connection.sendall(_HELLO)
            return connection.recv(8, socket.MSG_WAITALL) == _HELLO
        return False


def _home() -> Path:
    return next(unpacked(jars.ARTEMIS).glob("apache-artemis-*"))
