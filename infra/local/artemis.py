"""One ActiveMQ Artemis broker with the configuration of infra/artemis: made, started, stopped, crashed and started again.

Guarantees that what it accepted survives `kill` and `start` (its journal is synchronised), that the port stays the same, and that
it ends with its owner unless it is detached. Speaks AMQP 1.0 on this machine alone. Used by tests.
"""

import logging
import os
import shutil
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import jars
from infra.local.ports import PortTaken, start_on_port
from infra.local.process import Process, said_since, size

_log = logging.getLogger(__name__)

_START_SECONDS, _STOP_SECONDS = 90.0, 30.0
_CONFIGURATION = Path(__file__).resolve().parents[1] / "artemis"
#: An AMQP 1.0 header, for SASL: any AMQP broker answers with the same.
_HELLO = b"AMQP\x03\x01\x00\x00"


class Artemis:
    """One broker in a folder. `tls` is the TLS part of its acceptor; without it, it speaks in the clear.

    `users` have a password each and the role of their own name, besides those in infra/artemis.
    """

    kind = "artemis"

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        tls: str = "saslMechanisms=PLAIN",
        users: Mapping[str, str] | None = None,
        heap_megabytes: int = 256,
        detached: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.tls = tls
        self.users = dict(users or {})
        self.heap_megabytes = heap_megabytes
        self.log = self.folder / "artemis.log"
        self._wanted_port = port
        self._process = Process(self.folder / "process.json", self.log, end_signal=signal.SIGKILL, detached=detached)

    @property
    def port(self) -> int:
        """The TCP port for clients on 127.0.0.1; 0 before the first start, unless one was given."""
        if self._wanted_port:
            return self._wanted_port
        with suppress(OSError, ValueError):
            return int((self.folder / "port").read_text())
        return 0

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def version(self) -> str:
        """The broker's version."""
        return _home().name.rpartition("-")[2]

    @property
    def pid(self) -> int | None:
        """The broker's process id; None when it does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker runs."""
        return self.pid is not None

    def start(self) -> None:
        """Start the broker and wait until it answers; do nothing if it runs.

        Raises NeedsOperator if it cannot start; the message ends with what it said.
        """
        if self.running:
            return
        if shutil.which("java") is None:
            raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.")
        start_on_port(self._start_on, kept=self.port, what=f"Artemis in {self.folder}")
        _log.debug("artemis: %s listens on %s", self.folder.name, self.address)

    def stop(self) -> None:
        """Stop the broker and wait until it is gone; do nothing if it does not run."""
        self._process.end(signal.SIGTERM, _STOP_SECONDS)

    def kill(self) -> None:
        """Kill the broker at once, as a crash of the machine would."""
        self._process.kill()

    def delete(self) -> None:
        """Remove the broker and its messages; kills it first if it runs."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_on(self, port: int) -> None:
        settings = self.folder / "etc"
        shutil.copytree(_CONFIGURATION, settings, dirs_exist_ok=True)
        (self.folder / "port").write_text(str(port))
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
            "log4j2.level": "WARN",
            "java.awt.headless": "true",
        }
        before = size(self.log)
        self._process.launch(
            [
                "java",
                f"-Xmx{self.heap_megabytes}m",
                "-XX:-UsePerfData",
                *(f"-D{name}={value}" for name, value in options.items()),
                "-cp",
                home / "lib" / "artemis-boot.jar",
                "org.apache.activemq.artemis.boot.Artemis",
                "run",
            ],
            folder=self.folder,
            environment=os.environ,
        )
        if not self._process.wait_until(lambda: self._process.listens_on(port) and self._answers(port), _START_SECONDS):
            said = said_since(self.log, before)
            if "Address already in use" in said:
                raise PortTaken
            raise NeedsOperator(
                f"Artemis in {self.folder} ended while it started. Its last words:\n{said[-1500:]}",
                hint=f"Read the end of {self.log}.",
            )

    def _answers(self, port: int) -> bool:
        """Say whether the broker answers a greeting; with TLS, whether it takes a connection."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            if "sslEnabled=true" in self.tls:
                return True
            connection.sendall(_HELLO)
            return connection.recv(8, socket.MSG_WAITALL) == _HELLO
        return False


def _home() -> Path:
    return next(jars.unpacked(jars.ARTEMIS).glob("apache-artemis-*"))
