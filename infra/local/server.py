"""The port that every server of the local stack implements; infra/local/stack.py knows servers by nothing else."""

from pathlib import Path
from typing import Protocol


class Server(Protocol):
    """What every server of a stack can do."""

    @property
    def kind(self) -> str:
        """What it is, in one word."""

    @property
    def folder(self) -> Path:
        """The folder of its own files."""

    @property
    def log(self) -> Path:
        """The file that it logs to."""

    @property
    def address(self) -> str:
        """Host and port."""

    @property
    def version(self) -> str:
        """The server's version."""

    @property
    def pid(self) -> int | None:
        """The server's process id; None when it does not run."""

    @property
    def running(self) -> bool:
        """Whether the server runs."""

    def start(self) -> None:
        """Start the server and wait until it answers; do nothing if it runs."""

    def stop(self) -> None:
        """Stop the server and wait until it is gone; do nothing if it does not run."""

    def kill(self) -> None:
        """Kill every process of the server at once."""

    def delete(self) -> None:
        """Kill the server if it runs, and remove its files."""
