"""A running `headrace lake serve`, and clients of both its protocols: Hive's JDBC driver in plain Java, and Spark Connect's."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from headrace.certificates.command import Authority
from infra.local.server import free_port
from tests.rules.waiting import eventually

TOKEN = "a-token-of-alice"
LATE = "a-token-of-yesterday"
_PASSWORD = "changeit"


def digest(token: str) -> str:
    """Return how the file of users has a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Server:
    """The process, on ports of its own, with users and TLS."""

    def __init__(self, file: Path, settings: str = "") -> None:
        self.folder = file.parent
        Authority(self.folder / "authority").server("sql", ["localhost"])
        self.authority = self.folder / "authority" / "authority.pem"
        self.users = self.folder / "users"
        self.users.write_text(f"# who may ask\nalice:{digest(TOKEN)}\nbob:{digest(LATE)}:2020-01-31\n")
        self.audit = self.folder / "audit.jsonl"
        self.connect_port, self.thrift_port = free_port(), free_port()
        self.file = self.folder / "serve.toml"
        self.file.write_text(
            f'{file.read_text()}\n[serve]\nconnect = "localhost:{self.connect_port}"\nthrift = "localhost:{self.thrift_port}"\n'
            'users = "users"\naudit = "audit.jsonl"\ncertificate = "authority/sql.pem"\nkey = "authority/sql.key"\n'
            f"queries = 8\nrows = 1000\n{settings}"
        )
        self.process: subprocess.Popen[str] | None = None
        self._trusted = self.folder / "trusted.p12"

    def start(self) -> None:
        """Start it, and return once it answers."""
        command = [sys.executable, "-m", "headrace", "lake", "serve", "--config", str(self.file)]
        with (self.folder / "serve.log").open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, text=True, start_new_session=True, cwd=self.folder
            )
        process = self.process
        eventually(lambda: "JDBC:" in self.log or process.poll() is not None, 240, saying="the server answers")
        assert process.poll() is None, self.log

    @property
    def log(self) -> str:
        """Return what it has logged since it was started."""
        return (self.folder / "serve.log").read_text()

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop it, with its JVM."""
        if self.process is not None and self.process.poll() is None:
            if how == signal.SIGKILL:
                os.killpg(self.process.pid, how)
            else:
                self.process.send_signal(how)
            self.process.wait(60)

    def url(self, token: str = TOKEN) -> str:
        """Return the address for Spark Connect."""
        return f"sc://localhost:{self.connect_port}/;use_ssl=true;token={token}"

    @contextmanager
    def connect(self, token: str = TOKEN) -> Iterator[Any]:
        """Give a session of Spark Connect."""
        session = ConnectSession(self.url(token))
        try:
            yield session
        finally:
            session.stop()

    @property
    def jdbc_url(self) -> str:
        """Return the address for JDBC, whose file of the trusted authority is made once."""
        if not self._trusted.exists():
            options = (
                f"-alias ours -file {self.authority} -keystore {self._trusted} -storetype PKCS12 -storepass {_PASSWORD}"
            )
            subprocess.run(["keytool", "-importcert", "-noprompt", *options.split()], check=True, capture_output=True)
        address = f"jdbc:hive2://localhost:{self.thrift_port}/silver;ssl=true;sslTrustStore={self._trusted}"
        return f"{address};trustStorePassword={_PASSWORD}"

    @contextmanager
    def jdbc(
        self, spark: SparkSession, user: str = "alice", token: str = TOKEN, more: str = ""
    ) -> Iterator["Statements"]:
        """Give a JDBC connection, made in the tests' own JVM."""
        connection = spark._jvm.java.sql.DriverManager.getConnection(self.jdbc_url + more, user, token)
        try:
            yield Statements(connection)
        finally:
            connection.close()


class Statements:
    """A JDBC connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, text: str) -> list[tuple[str | None, ...]]:
        """Return an answer's rows, each value as text."""
        statement = self.connection.createStatement()
        try:
            return self.rows(statement.getResultSet()) if statement.execute(text) else []
        finally:
            statement.close()

    @staticmethod
    def rows(answer: Any) -> list[tuple[str | None, ...]]:
        """Return the rows of an answer."""
        columns = range(1, answer.getMetaData().getColumnCount() + 1)
        results = []
        while answer.next():
            results.append(tuple(answer.getString(column) for column in columns))
        return results
