"""The founding case on this machine: `make demo-fraud` commits card transactions, and prints the frauds as branches accept them.

It starts PostgreSQL in jakarta, MariaDB in singapore, Kafka, an edge for each region, the bridge, the stream job and a receiver
for each region's branches. All of it ends with the demo. The latency of a fraud is the time from the COMMIT of its later
transaction, as the client of the database sees it, to the accept of the alert by the branch.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import check
import generate
from local import MARIADB, POSTGRES, Bank
from rich.console import Console

from headrace.errors import NeedsOperator, ReplicationError
from infra.local.demo.demo import Stages, wait_until
from infra.local.demo.region import headrace
from infra.local.process import Process, tail
from infra.local.stack import Stack

#: Seconds after which the demo waits no longer for alerts.
_TIMEOUT = 180.0


class Demo:
    """One run in one folder."""

    def __init__(self, folder: Path, console: Console, finder: str) -> None:
        self._folder, self._console = folder.absolute(), console
        self._stack = Stack(self._folder / "servers", postgres=[POSTGRES], mariadb=[MARIADB])
        self._finder = finder
        self._running: dict[str, Process] = {}

    def run(self, *, seed: int, seconds: float, rate: float, frauds: int) -> bool:
        """Run all stages; return whether each fraud alerted once and nothing else did."""
        stages = Stages(self._console)
        with ExitStack() as ending:
            with stages.stage("start PostgreSQL in jakarta, MariaDB in singapore, and Kafka"):
                ending.callback(self._stack.stop)
                self._stack.start()
            bank = Bank(self._folder, self._stack)
            with stages.stage("tables, topics, begin of capture"):
                bank.prepare(headrace)
            what = "the stream job (Spark)" if self._finder == "job" else "plain.py"
            with stages.stage(f"start edges, bridge, {what} and the branches' receivers"):
                ending.callback(self._stop)
                self._start(bank)
                # The first batches load classes and start workers: they are not measured.
                warm = generate.plan(seed=seed, part=1, seconds=10, rate=rate / 5, frauds=20, undeliverable=0)
                with self._written(warm, bank) as writers:
                    writers.wait()
                    self._wait_for(warm, bank)
            plan = generate.plan(seed=seed, part=2, seconds=seconds, rate=rate, frauds=frauds)
            self._console.print(
                f"\n{len(plan.rows):,} transactions in {seconds:.0f} s, {rate:.0f} a second; {frauds} cases of fraud,"
                f" {frauds} near misses, one card without a branch\n"
            )
            with self._written(plan, bank) as writers:
                self._follow(plan, bank, writers)
                alerts = [alert for alert in self._accepted(bank) if alert.id not in warm.alerts]
                return self._sum_up(plan, check.check(plan.alerts, alerts), check.latencies(alerts, writers.committed))

    def _start(self, bank: Bank) -> None:
        for name, command in bank.commands(finder=self._finder).items():
            log = self._folder / "logs" / f"{name}.log"
            process = Process(self._folder / f"{name}.json", log, end_signal=signal.SIGTERM, detached=False)
            self._running[name] = process
            environment = os.environ | {"HEADRACE_LOG_FORMAT": "text", "TMPDIR": str(self._folder)}
            process.launch(command, folder=self._folder, environment=environment)

    def _stop(self) -> None:
        for process in reversed(self._running.values()):
            process.end(signal.SIGTERM, 30)

    @contextmanager
    def _written(self, plan: generate.Plan, bank: Bank) -> Iterator[generate.Writers]:
        writers = generate.Writers(plan.rows, bank.connect, clients=4)
        try:
            writers.start()
            yield writers
        finally:
            writers.stop()

    def _accepted(self, bank: Bank) -> list[check.Accepted]:
        return [alert for region in bank.connect for alert in check.accepted(bank.database(region))]

    def _wait_for(self, plan: generate.Plan, bank: Bank) -> None:
        def all_accepted() -> bool:
            self._check_running()
            return plan.alerts.keys() <= {alert.id for alert in self._accepted(bank)}

        wait_until(all_accepted, seconds=_TIMEOUT, error=self._late)

    def _late(self) -> Exception:
        return NeedsOperator(
            f"not every fraud was accepted after {_TIMEOUT:.0f} s", hint=f"Read {self._folder / 'logs'}."
        )

    def _check_running(self) -> None:
        for name, process in self._running.items():
            if process.pid is None:
                raise NeedsOperator(f"{name} has ended:\n{tail(process.log)}", hint=f"Read {process.log}.")

    def _follow(self, plan: generate.Plan, bank: Bank, writers: generate.Writers) -> None:
        """Print each fraud when it is accepted; return when all are, or when time is up."""
        seen: set[str] = set()
        deadline = time.monotonic() + plan.rows[-1].due + _TIMEOUT
        while not plan.alerts.keys() <= seen and time.monotonic() < deadline:
            self._check_running()
            for alert in self._accepted(bank):
                if alert.id in seen or alert.id not in plan.alerts:
                    continue
                (seconds,) = check.latencies([alert], writers.committed).values()
                seen.add(alert.id)
                self._console.print(
                    f"  [red]blocked[/] {alert.card} at {alert.branch:<20} {plan.alerts[alert.id]:<24} {seconds:6.2f} s"
                )
            time.sleep(0.1)
        writers.wait()

    def _sum_up(self, plan: generate.Plan, verdict: check.Verdict, latencies: dict[str, float]) -> bool:
        self._console.print()
        for title, ids in verdict._asdict().items():
            if ids:
                self._console.print(f"[bold red]{title}: {len(ids)}[/] {', '.join(ids)[:500]}")
        if not any(verdict):
            self._console.print(
                f"[green]✓[/] {len(plan.alerts)} alerts for {len(plan.alerts)} frauds: none missed, none twice, none false"
            )
        if latencies:
            median, most = (check.quantile(latencies.values(), share) for share in (0.5, 0.99))
            self._console.print(
                f"from COMMIT to the branch's accept: p50 {median:.2f} s, p99 {most:.2f} s, longest"
                f" {max(latencies.values()):.2f} s"
            )
        return not any(verdict)


def main() -> None:
    """Run the demo; exit code 1 when an alert is missed, false or came twice, 3 when something could not be started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(".headrace/demo-fraud"), help="emptied at the start")
    parser.add_argument("--finder", choices=["job", "plain"], default="job", help="the stream job, or plain.py")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=500, help="transactions a second in both regions together")
    parser.add_argument("--frauds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    # Asked to end, it stops what it started, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.folder.exists():
        if not (options.folder / "servers" / "stack.json").exists() and any(options.folder.iterdir()):
            sys.exit(f"{options.folder} is not a demo's folder, so it is not emptied: name another with --folder")
        shutil.rmtree(options.folder)
    options.folder.mkdir(parents=True)
    try:
        well = Demo(options.folder, console, options.finder).run(
            seed=options.seed, seconds=options.seconds, rate=options.rate, frauds=options.frauds
        )
    except ReplicationError as error:
        console.print(f"[bold red]{error}[/]\n{getattr(error, 'hint', '')}")
        sys.exit(3)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
