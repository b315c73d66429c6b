"""`headrace up`, `down` and `status`: named PostgreSQL clusters and MariaDB servers, and one Kafka broker, in one folder.

Guarantees that the servers end with the process that started them, unless the stack is detached, as the commands have it; that
what a crashed stack left behind is recognised and the next start works; that two processes never start the same folder at once.
Every server keeps its own files in a folder of its own, and its log in `logs/`; `stack.json` lists the servers. The folder can be
deleted. Used by the demo and tests, too.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import click
import psutil

from headrace.errors import ConfigurationError, NeedsOperator
from headrace.terminal import Terminal, in_style, styled
from infra.local.kafka import Kafka
from infra.local.mariadb import Mariadb
from infra.local.postgres import Postgres
from infra.local.server import Server

_FORMAT = 1
_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace"),
    show_default=True,
    help="Where the servers keep everything: data, logs, records of their processes.",
)


class Stack:
    """The servers of one folder. As a context manager, starts them and stops them.

    `detached` servers stay when this process ends; others end with it, even if it is killed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        postgres: Iterable[str] = ("jakarta", "london"),
        mariadb: Iterable[str] = (),
        kafka: bool = True,
        postgres_settings: Mapping[str, object] | None = None,
        kafka_settings: Mapping[str, object] | None = None,
        detached: bool = False,
    ) -> None:
        postgres, mariadb = list(postgres), list(mariadb)
        if both := set(postgres) & set(mariadb):
            raise ConfigurationError(
                f"{min(both)!r} cannot name two servers.", hint="Give each server of a stack a name of its own."
            )
        self.folder = folder.absolute()
        self.detached = detached
        self._settings = {"postgres": dict(postgres_settings or {}), "kafka": dict(kafka_settings or {})}
        logs = self.folder / "logs"
        #: The clusters by name.
        self.postgres = {
            name: Postgres(
                self.folder / "postgres" / _check_name(name),
                settings=postgres_settings,
                log=logs / f"{name}.log",
                detached=detached,
            )
            for name in postgres
        }
        #: The MariaDB servers by name.
        self.mariadb = {
            name: Mariadb(self.folder / "mariadb" / _check_name(name), log=logs / f"{name}.log", detached=detached)
            for name in mariadb
        }
        self._kafka: Kafka | None = None
        if kafka:
            self._kafka = Kafka(
                self.folder / "kafka", settings=kafka_settings, log=logs / "kafka.log", detached=detached
            )

    @classmethod
    def load(cls, folder: Path, more_postgres: Iterable[str] = (), more_mariadb: Iterable[str] = ()) -> Self:
        """Return the stack of the folder as another process started it, with more databases if any are named.

        What it starts is detached. Raises NeedsOperator if there is no stack.
        """
        saved = _read(folder)
        if saved is None:
            raise NeedsOperator(f"There is no stack in {folder.absolute()}.", hint="Start one: headrace up.")
        return cls(
            folder,
            postgres=dict.fromkeys((*saved["postgres"], *more_postgres)),
            mariadb=dict.fromkeys((*saved.get("mariadb", ()), *more_mariadb)),
            kafka=saved["kafka"],
            postgres_settings=saved["postgres_settings"],
            kafka_settings=saved["kafka_settings"],
            detached=True,
        )

    @property
    def kafka(self) -> Kafka:
        """The broker; raise NeedsOperator if the stack has none."""
        if self._kafka is None:
            raise NeedsOperator(f"The stack in {self.folder} has no Kafka.", hint="Make one that has.")
        return self._kafka

    @property
    def servers(self) -> dict[str, Server]:
        """All servers by name."""
        servers: dict[str, Server] = {**self.postgres, **self.mariadb}
        if self._kafka is not None:
            servers[Kafka.kind] = self._kafka
        return servers

    @property
    def running(self) -> bool:
        """Whether every server runs."""
        return all(server.running for server in self.servers.values())

    def version(self, name: str) -> str:
        """Return the version of the named server, as it was when the stack was last started."""
        saved = _read(self.folder)
        return str(saved["versions"][name]) if saved else self.servers[name].version

    def start(self) -> None:
        """Start every server that does not run, all at once; if one cannot start, none stays that was started here.

        Raises NeedsOperator if a server cannot start, or if another process runs this folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._take_over()
            self._write()
            missing = [server for server in self.servers.values() if not server.running]
            try:
                _all_at_once([server.start for server in missing])
            except BaseException:
                _all_at_once([server.kill for server in missing])
                raise

    def stop(self) -> None:
        """Stop every server, all at once; what does not stop in time is killed."""
        if self.folder.exists():
            with self._locked():
                _all_at_once([server.stop for server in self.servers.values()])

    def delete(self) -> None:
        """Kill what runs and remove the folder with all that the servers hold."""
        _all_at_once([server.delete for server in self.servers.values()])
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start every server."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every server."""
        self.stop()

    def _take_over(self) -> None:
        running = [server for server in self.servers.values() if server.running]
        owner = (_read(self.folder) or {}).get("owner")
        if not running or owner == _identity(os.getpid()) or (owner is None and self.detached):
            return
        if owner is None or _identity(owner["pid"]) == owner:
            who = f"process {owner['pid']}" if owner else "headrace up"
            raise NeedsOperator(
                f"The stack in {self.folder} is already running, started by {who}.",
                hint="Use another folder, or stop it: headrace down.",
            )
        # Its owner has just died, and so will they.
        _all_at_once([server.kill for server in running])

    def _write(self) -> None:
        content = {
            "format": _FORMAT,
            "owner": None if self.detached else _identity(os.getpid()),
            "postgres": list(self.postgres),
            "mariadb": list(self.mariadb),
            "postgres_settings": self._settings["postgres"],
            "kafka": self._kafka is not None,
            "kafka_settings": self._settings["kafka"],
            "versions": {name: server.version for name, server in self.servers.items()},
        }
        fresh = self.folder / "stack.json.new"
        fresh.write_text(json.dumps(content, indent=1))
        fresh.replace(self.folder / "stack.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / "stack.json"
    try:
        saved = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        saved = None
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise NeedsOperator(
            f"{path.absolute()} is not a stack that this release understands.",
            hint="Stop its servers with the release that started them, then remove the folder.",
        )
    return saved


def _identity(pid: int) -> dict[str, float] | None:
    try:
        return {"pid": pid, "started": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:
        return None


def _check_name(name: str) -> str:
    if not name.replace("-", "").replace("_", "").isalnum() or name == Kafka.kind:
        raise ConfigurationError(
            f"{name!r} cannot be a server's name.",
            hint="Use letters, digits, '-' and '_'; 'kafka' is the broker's.",
        )
    return name


def _all_at_once(steps: list[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(max_workers=max(1, len(steps))) as pool:
        # All have ended when the first error is raised.
        running = [pool.submit(step) for step in steps]
    for step in running:
        step.result()


def _console() -> Terminal:
    return Terminal(soft_wrap=True)


def _exists(folder: Path) -> bool:
    return (folder / "stack.json").exists()


@click.command()
@_folder
@click.option(
    "--postgres",
    "names",
    metavar="NAME",
    multiple=True,
    help="A PostgreSQL cluster to run; repeat for more.  [default: those of last time, at first: jakarta, london]",
)
@click.option(
    "--mariadb",
    "mariadb_names",
    metavar="NAME",
    multiple=True,
    help="A MariaDB server to run; repeat for more.  [default: those of last time, at first none]",
)
def up(folder: Path, names: tuple[str, ...], mariadb_names: tuple[str, ...]) -> None:
    """Start database servers and Kafka on this machine, on free ports, and leave them running.

    The first start makes the servers and picks the ports; later ones keep both. What runs already is left alone.
    """
    console = _console()
    if _exists(folder):
        stack = Stack.load(folder, more_postgres=names, more_mariadb=mariadb_names)
    else:
        postgres = dict.fromkeys(names or ("jakarta", "london"))
        stack = Stack(folder, postgres=postgres, mariadb=dict.fromkeys(mariadb_names), detached=True)
    before = {name for name, server in stack.servers.items() if server.running}
    if before < set(stack.servers):
        with console.status(styled("Starting {}", ", ".join(sorted(set(stack.servers) - before)))):
            stack.start()
    if before:
        console.print(f"Already running: {', '.join(sorted(before))}.")
    _show(console, stack)
    console.print(styled("[dim]Stop them with: headrace down. Their logs:[/] {}", stack.folder / "logs"))


@click.command()
@_folder
@click.option("--delete", is_flag=True, help="Also remove the folder, with all that the servers hold.")
def down(folder: Path, *, delete: bool) -> None:
    """Stop the local servers; what they hold stays, unless --delete is given."""
    console = _console()
    if not _exists(folder):
        console.print(f"Nothing is running in {folder.absolute()}: there is no stack in it.")
        return
    stack = Stack.load(folder)
    names = sorted(name for name, server in stack.servers.items() if server.running)
    with console.status(styled("Stopping {}", ", ".join(names))):
        stack.stop()
        if delete:
            stack.delete()
    console.print(f"Stopped: {', '.join(names)}." if names else "Nothing was running.")
    if delete:
        console.print(f"Removed {stack.folder}.")


@click.command()
@_folder
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def status(folder: Path, *, as_json: bool) -> None:
    """Show the local servers: name, version, address, state, folder. Exit code 1 unless all are running."""
    console = _console()
    stack = Stack.load(folder) if _exists(folder) else None
    running = stack is not None and stack.running
    if as_json:
        described = {name: _describe(stack, name) for name in stack.servers} if stack else {}
        click.echo(json.dumps({"folder": str(folder.absolute()), "running": running, "servers": described}, indent=1))
    elif stack is None:
        console.print(f"There is no stack in {folder.absolute()}. Start one: headrace up.")
    else:
        _show(console, stack)
    sys.exit(0 if running else 1)


def _describe(stack: Stack, name: str) -> dict[str, object]:
    server = stack.servers[name]
    return {
        "kind": server.kind,
        "version": stack.version(name),
        "address": server.address,
        "user": server.user,
        "running": server.running,
        "pid": server.pid,
        "folder": str(server.folder),
        "log": str(server.log),
    }


def _show(console: Terminal, stack: Stack) -> None:
    width = max(len(name) for name in stack.servers)
    for name, server in stack.servers.items():
        state = in_style("running", "green") if server.running else in_style("stopped", "red")
        what = f"{server.kind} {stack.version(name)}"
        address = f"{server.user}@{server.address}" if server.user else server.address
        console.print(styled("{}  {:<16}  {:<24}  {}  {}", f"{name:<{width}}", what, address, state, server.folder))
