"""A browser, regions that a bridge serves, and consoles as processes of their own."""

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from infra.local.server import free_port
from tests.bridge.bridge_file import bridge_file
from tests.edge.fix_edge import PostgresEdge
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database

#: Where Debian's package puts it; another browser of the family by CHROMIUM=.
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
SOURCES = ("jakarta/bank", "london/cards")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a Chromium without a screen."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A page of the browser, and what it must not do: errors in its console, requests to others."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.errors: list[str] = []
        self.strangers: list[str] = []
        page.on("console", lambda line: self.errors.append(line.text) if line.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(base) else self.strangers.append(asked.url))

    def go(self, path: str) -> Page:
        answer = self.page.goto(self.base + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status, self.page.inner_text("body"))
        return self.page


@pytest.fixture
def watched(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Yield a function that opens a page on a console; at the end of the test it must have kept to itself."""
    opened: list[Watched] = []

    def open_page(base: str, **options: Any) -> Watched:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        opened.append(Watched(context.new_page(), base))
        return opened[-1]

    yield open_page
    for each in opened:
        each.page.context.close()
    # A console that is killed under an open page is an error in the browser's own words.
    assert [line for each in opened for line in each.errors if "ERR_CONNECTION" not in line] == []
    assert [url for each in opened for url in each.strangers] == []


class Headquarters:
    """Two regions, and the bridge that serves both."""

    def __init__(self, folder: Path, kafka: Any, topic: str, outside: Callable[..., Any], postgres: Any) -> None:
        self.topic = topic
        self.metrics = f"127.0.0.1:{free_port()}"
        owned = {source: [number] for number, source in enumerate(SOURCES)}
        self.file = bridge_file(folder, kafka.bootstrap, owned, topic=topic, port=free_port(), metrics=self.metrics)
        self._outside = outside
        self.databases = {source: Database(postgres) for source in SOURCES}
        self.edges: dict[str, PostgresEdge] = {}
        self.bridge = outside(path=self.file)

    def start(self, edges: Callable[..., PostgresEdge]) -> None:
        for source, database in self.databases.items():
            database.execute("create table accounts (id int primary key, note text)")
            self.edges[source] = edges(database, f"amqp://127.0.0.1:{self.bridge.port}", source=source)
            self.edges[source].init()
            self.edges[source].start()
            database.execute("insert into accounts select i, 'a' from generate_series(1, 500) i")

    def start_bridge(self) -> None:
        self.bridge = self._outside(path=self.file)


@pytest.fixture
def headquarters(
    tmp_path: Path,
    kafka: Any,
    topic: Callable[..., str],
    outside: Callable[..., Any],
    postgres: Any,
    edges: Callable[..., PostgresEdge],
) -> Iterator[Headquarters]:
    """Yield a running bridge with two edges, each of which has sent rows."""
    made = Headquarters(tmp_path, kafka, topic(len(SOURCES)), outside, postgres)
    made.start(edges)
    yield made
    for edge in made.edges.values():
        if edge.process is not None and edge.process.poll() is None:
            edge.kill()
    for database in made.databases.values():
        database.drop()


class RunningConsole:
    """`headrace console` as a process."""

    def __init__(self, log: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "console", "--listen", f"127.0.0.1:{self.port}", *options],
                stdout=out,
                stderr=out,
            )
        eventually(self._answers, saying=f"the console answers: {log.read_text()}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the console ended"
        with urllib.request.urlopen(f"{self.url}/static/icon.svg", timeout=5) as answer:
            return answer.status == 200

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Callable[..., RunningConsole]]:
    """Yield a function that starts a console with options."""
    running_consoles: list[RunningConsole] = []

    def start(*options: str) -> RunningConsole:
        running_consoles.append(RunningConsole(tmp_path / "console.log", *options))
        return running_consoles[-1]

    yield start
    for each in running_consoles:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(30)
    print((tmp_path / "console.log").read_text() if running_consoles else "")
