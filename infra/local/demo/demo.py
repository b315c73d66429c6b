"""`headrace demo`: the main job on this machine, on real input, with a screen at its end that a person can read.

Its stages, in order, use the commands that an operator would use. Assumes that `make setup` was done. Whatever happens, nothing
is left running, unless it is asked to keep everything.
"""

import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from headrace import process
from headrace.errors import NeedsOperator
from headrace.terminal import Terminal, styled
from infra.local import files
from infra.local.airflow import Airflow, DagRun
from infra.local.demo.bank import Bank, Pay
from infra.local.demo.region import Part, Region, headrace
from infra.local.demo.screen import Addresses, Screen, command_lines
from infra.local.server import free_port
from infra.local.stack import Stack

_WIDTH = 66


class Stages:
    """The stages of one run, shown on a console."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._began = time.monotonic()

    @contextmanager
    def stage(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show a stage while its body runs; the body may report how far it is."""
        began = time.monotonic()
        with self._console.status(styled("{}", title)) as status:

            def report(progress: str) -> None:
                status.update(styled("{} [dim]{}[/]", title, progress))

            yield report
        took = time.monotonic() - began
        self._console.print(styled("[green]✓[/] {} [dim]{:6.1f} s[/]", f"{title:<{_WIDTH}}", took))

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return time.monotonic() - self._began


def wait_until(is_done: Callable[[], bool], *, seconds: float, error: Callable[[], Exception]) -> None:
    """Return when it is done; raise what `error` makes when the seconds are over."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise error()
        time.sleep(0.1)


class Writers:
    """The writers of all regions, at the same pace."""

    def __init__(self, regions: list[Region], *, clients: int, rate: int) -> None:
        self._regions = regions
        self._clients, self._rate = clients, rate
        self._transactions: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def go_on(self, seconds: int) -> None:
        """Start a round of so many seconds; returns at once."""
        for region in self._regions:
            region.write(clients=self._clients, seconds=seconds, rate=self._rate)

    def wait(self) -> None:
        """Wait for the round to end."""
        for region in self._regions:
            transactions, seconds = region.transactions()
            self._transactions[region.name] += transactions
            self._seconds[region.name] += seconds

    def stop(self) -> None:
        """End the round, if one is running."""
        for region in self._regions:
            region.stop_writing()

    @property
    def reported(self) -> dict[str, tuple[int, float]]:
        """For each region: transactions committed, and how many a second while they wrote."""
        return {name: (count, count / self._seconds[name]) for name, count in self._transactions.items()}


STREAM = "bank"
_POSTGRES, _MARIADB = ("jakarta", "london"), ("singapore",)
_CATCH_UP_SECONDS = 180.0
#: However short the first round of writing, the second load has something to do.
_AGAIN_SECONDS = 5


class Demo:
    """One run in one folder."""

    def __init__(self, folder: Path, *, keep: bool) -> None:
        self._keep = keep
        self._console = Terminal()
        forget(folder)
        self._folder = folder.absolute()
        self._folder.mkdir(parents=True)
        self._stack = Stack(self._folder / "servers", postgres=_POSTGRES, mariadb=_MARIADB, detached=keep)

    def run(self, *, scale: int, clients: int, seconds: int, rate: int) -> None:
        """Run all stages and print the screen; raise NeedsOperator when one fails or the lake is not equal."""
        stages = Stages(self._console)
        # Asked to end, it stops what it started, as on Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._console.print(styled("[bold]Headrace demo[/] in {}", self._folder))
        with ExitStack() as ending:
            with stages.stage("start PostgreSQL in two regions, MariaDB in a third, and Kafka"):
                ending.callback(self._unless_kept, self._stack.stop)
                self._stack.start()
            regions = self._regions()
            airflow = Airflow(self._folder / "airflow", self._lake_file, jars=process.jar_folder())
            ending.callback(airflow.stop)
            airflow.start()
            # It does the loads, and starts meanwhile.
            ending.callback(self._unless_kept, self._serve.stop)
            self._serve.start()
            with stages.stage("start bridge and edges; fill the databases, captured from the start") as report:
                headrace("bridge", "init", "--config", str(self._bridge_file))
                ending.callback(self._unless_kept, self._bridge.stop)
                self._bridge.start()
                for region in regions:
                    report(f"{region.name}: tables, begin of capture, rows")
                    ending.callback(self._unless_kept, region.edge.stop)
                    region.prepare(scale)
            writers = Writers(regions, clients=clients, rate=rate)
            ending.callback(writers.stop)
            writers.go_on(seconds)
            for what in dict.fromkeys(region.workload for region in regions):
                names = " and ".join(region.name for region in regions if region.workload == what)
                self._console.print(f"  {names}: {what}, {clients} clients, {rate} transactions/s each, {seconds} s")
            with stages.stage("first load, by Airflow, while they write"):
                self._wait_for_serve()
                first = airflow.run(f"headrace_load_{STREAM}").check()
            again = max(_AGAIN_SECONDS, seconds // 4)
            with stages.stage(f"wait for the writers to end; they write again, for {again} s"):
                writers.wait()
                writers.go_on(again)
                writers.wait()
            with stages.stage("every change acknowledged by Kafka, every edge confirmed"):
                self._catch_up(regions)
            with stages.stage("second load, by Airflow: what came since"):
                second = airflow.run(f"headrace_load_{STREAM}").check()
            self._finish(stages, regions, [first, second], writers)

    def _finish(self, stages: Stages, regions: list[Region], runs: list[DagRun], writers: Writers) -> None:
        screen = Screen(self._console, self._bridge_file, self._lake_file)
        with stages.stage("compare every table with its source"):
            screen.verify()
        with stages.stage("ask the lake in Spark SQL"):
            screen.ask(self._addresses.connect)
        equal = screen.show(regions, runs, writers.reported)
        self._console.print(styled("\n[dim]{:.0f} s in all[/]", stages.seconds))
        if self._keep:
            self._run_console()
            self._show_what_to_try()
        if not equal:
            raise NeedsOperator("the lake does not equal the databases", hint=f"Everything is in {self._folder}.")

    def _regions(self) -> list[Region]:
        port = free_port()
        bridge = f"amqp://127.0.0.1:{port}"
        banks = [
            Bank(name, self._folder, postgres, interconnect=bridge, detached=self._keep)
            for name, postgres in self._stack.postgres.items()
        ]
        houses = [
            Pay(name, self._folder, mariadb, interconnect=bridge, detached=self._keep)
            for name, mariadb in self._stack.mariadb.items()
        ]
        regions: list[Region] = [*banks, *houses]
        self._addresses = Addresses(*(f"127.0.0.1:{free_port()}" for _ in Addresses._fields))
        bootstrap = self._stack.kafka.bootstrap
        self._bridge_file = files.bridge(
            self._folder / "bridge.toml",
            bootstrap=bootstrap,
            listen=f"127.0.0.1:{port}",
            sources=[region.source for region in regions],
            stream=STREAM,
            requests=True,
            metrics=self._addresses.metrics,
        )
        self._lake_file = files.lake(
            self._folder / "lake.toml",
            bootstrap=bootstrap,
            sources=[region.source for region in regions],
            stream=STREAM,
            serve=(self._addresses.connect, self._addresses.thrift),
        )
        self._serve = Part(
            "serve", ["lake", "serve", "--config", str(self._lake_file)], self._folder, detached=self._keep
        )
        run = ["bridge", "run", "--config", str(self._bridge_file)]
        self._bridge = Part("bridge", run, self._folder, detached=self._keep)
        return regions

    def _catch_up(self, regions: list[Region]) -> None:
        for region in regions:
            end = region.log_position()

            def is_confirmed(region: Region = region, end: str = end) -> bool:
                region.edge.check()
                self._bridge.check()
                return region.has_confirmed(end)

            def late(region: Region = region) -> Exception:
                return NeedsOperator(
                    f"{region.source} is not confirmed after {_CATCH_UP_SECONDS:.0f} s",
                    hint=f"Read {region.edge.log} and {self._bridge.log}.",
                )

            wait_until(is_confirmed, seconds=_CATCH_UP_SECONDS, error=late)

    def _unless_kept(self, stop: Callable[[], None]) -> None:
        if not self._keep:
            stop()

    def _wait_for_serve(self) -> None:
        def answers() -> bool:
            self._serve.check()
            return "JDBC:" in self._serve.log.read_text()

        late = NeedsOperator("headrace lake serve does not answer", hint=f"Read {self._serve.log}.")
        wait_until(answers, seconds=_CATCH_UP_SECONDS, error=lambda: late)

    def _run_console(self) -> None:
        files = ["--config", str(self._bridge_file), "--lake", str(self._lake_file)]
        listen = ["--listen", self._addresses.console]
        Part("console", ["console", *files, *listen], self._folder, detached=True).start()

    def _show_what_to_try(self) -> None:
        lake, bridge, addresses = self._lake_file, self._bridge_file, self._addresses
        self._show(
            "Everything still runs.",
            [f"console: http://{addresses.console}/", f"SQL: sc://{addresses.connect} jdbc:hive2://{addresses.thrift}"],
        )
        self._show(
            "The same question to the lake, by DuckDB, in a notebook, by beeline:", command_lines(lake, addresses)
        )
        self._show(
            "More to try:",
            [
                f"headrace lake sql --config {lake}",
                f"headrace bridge positions --config {bridge}",
                f"headrace lake load {STREAM} --config {lake} && headrace verify --config {lake}",
                f"headrace demo --stop --folder {self._folder}",
            ],
        )

    def _show(self, title: str, lines: list[str]) -> None:
        self._console.print(styled("\n[bold]{}[/]", title))
        for line in lines:
            self._console.print(f"  {line}", soft_wrap=True)


def forget(folder: Path) -> None:
    """Stop what an earlier demo left running in the folder, and remove it; raise NeedsOperator when it is something else."""
    if not folder.exists():
        return
    servers = folder / "servers"
    if not (servers / "stack.json").exists() and any(folder.iterdir()):
        raise NeedsOperator(
            f"{folder} is not a demo's folder, so it is not emptied", hint="Name another with --folder."
        )
    for name in (*(f"edge-{region}" for region in (*_POSTGRES, *_MARIADB)), "bridge", "serve", "console"):
        Part(name, [], folder, detached=True).stop()
    if (servers / "stack.json").exists():
        Stack.load(servers).delete()
    shutil.rmtree(folder)


@click.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace/demo"),
    show_default=True,
    help="Where servers, logs, configuration and lake are. Emptied at the start.",
)
@click.option(
    "--scale",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Of TPC-B: 100,000 accounts each; and of 10,000 wallets.",
)
@click.option("--clients", type=click.IntRange(1, 32), default=4, show_default=True, help="That write to each region.")
@click.option("--seconds", type=click.IntRange(5, 3600), default=60, show_default=True, help="For how long they write.")
@click.option(
    "--rate", type=click.IntRange(1), default=100, show_default=True, help="Transactions a second in each region."
)
@click.option("--keep", is_flag=True, help="Leave everything running, with a console, to play with.")
@click.option("--stop", is_flag=True, help="Stop a demo that --keep left running, and remove its folder.")
def demo(*, folder: Path, scale: int, clients: int, seconds: int, rate: int, keep: bool, stop: bool) -> None:
    """Run the main job: three databases under load, captured, carried, loaded by Airflow, verified, asked in SQL.

    Starts PostgreSQL in two regions, MariaDB in a third, and Kafka, an edge for each region and the bridge. PostgreSQL's own
    pgbench writes to two regions and customers order in the third, all the while; Airflow runs the load twice, the second time
    only what came since; then every table is compared with its source.
    """
    if stop:
        forget(folder)
        click.echo(f"Stopped the demo in {folder} and removed it.")
        return
    Demo(folder, keep=keep).run(scale=scale, clients=clients, seconds=seconds, rate=rate)
