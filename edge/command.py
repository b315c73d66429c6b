"""The commands of an edge: `init` makes a source, `run` captures it, `position` shows where it is, `pass` passes over one.

`headrace status` has the status of an edge that does not run from here, by the entry point of pyproject.toml.
"""

import gc
import json
import logging
import sys
import time
from collections.abc import Callable

import click

from edge.commands.snapshot import snapshot
from edge.engine_registry import engine_of
from edge.progress.notes import Passed, PassedTransactions
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace import logs
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.configuration.new import new_edge
from headrace.errors import ConfigurationError, NeedsOperator, ReplicationError
from headrace.position import Position
from headrace.printable import echo
from headrace.process import HOLD, run_part
from headrace.requests import caller
from headrace.status.answer import SourceStatus

_CONFIG = click.option(
    "--config", "path", required=True, metavar="FILE", help="The edge's TOML file (docs/edge.md describes it)."
)


@click.command("pass")
@_CONFIG
@click.option("--gtid", metavar="GTID", help="The transaction, of MariaDB or MySQL.")
@click.option("--lsn", metavar="LSN", help="The transaction's commit LSN, of PostgreSQL.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pass_command(path: str, *, gtid: str | None, lsn: str | None, yes: bool, as_json: bool) -> None:
    """Pass over the one transaction at which the edge stopped; its changes are lost to headquarters.

    The last resort, once you have read about it (docs/trouble.md). A record says what was passed and by whom, and the tables that
    the transaction touched need a copy. Start the edge again afterwards.
    """
    config = load(path, EdgeFile)
    if config.source.debezium is not None:
        raise ConfigurationError("'headrace edge pass' is not for [source.debezium]", hint="See docs/debezium.md.")
    flag, other = ("--lsn", gtid) if config.source.postgresql is not None else ("--gtid", lsn)
    transaction = lsn if flag == "--lsn" else gtid
    if transaction is None or other is not None:
        raise ConfigurationError(f"give the transaction by {flag}", hint="The edge named it when it stopped.")
    if not (yes or sys.stdin.isatty()):
        raise ConfigurationError("nobody can be asked: standard input is no terminal", hint="Add --yes.")
    question = f"Give up the changes of transaction {transaction} of {config.source.name}?"
    passed = pass_transaction(config, transaction, lambda: yes or click.confirm(question))
    if passed is None:
        echo("Nothing was passed.")
    elif as_json:
        echo(json.dumps({"transaction": passed.transaction, "by": passed.by, "at_ms": passed.at_ms}))
    else:
        echo(f"Transaction {passed.transaction} is passed when the edge runs again; then copy the tables that need it.")


def pass_transaction(config: EdgeFile, transaction: str, consents: Callable[[], bool]) -> Passed | None:
    """Note that a transaction is passed, once `consents` returns true; return the note, None without consent.

    One that is passed already is left as it is. Raises NeedsOperator while an edge runs, and for any transaction but that at
    which decoding ended.
    """
    state = engine_of(config).state
    if not state.folder.is_dir():
        raise NeedsOperator(
            f"there is no state folder {state.folder}: this edge was never initialised here",
            hint="Run this on the edge's own machine, with its file.",
        )
    with state.locked():
        transactions = PassedTransactions(state.folder)
        if (passed := transactions.by_name.get(transaction)) is not None:
            return passed
        if transaction != transactions.stopped:
            where = f"it stopped at {transactions.stopped}" if transactions.stopped else "it did not stop at any"
            raise NeedsOperator(
                f"the edge of {config.source.name} is not at transaction {transaction}: {where}",
                hint="Run the edge until it stops again, and give the GTID or LSN that it names, as it is written there.",
            )
        if not consents():
            return None
        passed = Passed(transaction, caller(), time.time_ns() // 1_000_000)
        transactions.add(passed)
        return passed


@click.group()
def edge() -> None:
    """Capture one database and send its changes."""


edge.add_command(new_edge)
edge.add_command(snapshot)
edge.add_command(pass_command)


@edge.command()
@_CONFIG
@HOLD
def run(path: str, *, hold: bool) -> None:
    """Capture and send until SIGTERM or SIGINT.

    Stopping waits up to ten seconds for what is in flight to be acknowledged. Exit codes: 0 stopped; 2 the
    configuration is wrong; 3 an operator must decide; 4 the log holds what cannot be decoded.
    """
    from edge.agent import Agent

    config = load(path, EdgeFile)
    logs.serve("edge", config.source.name)
    agent = Agent(config)

    # The driver's own log lines add nothing to ours.
    logging.getLogger("proton").setLevel(logging.WARNING)
    # What is loaded stays: to look through it for garbage again and again would hold changes up, for 17 ms each time.
    gc.freeze()
    run_part("edge", agent.run, agent.stop, sources=[config.source.name], listen=config.metrics.listen, hold=hold)


@edge.command()
@_CONFIG
@click.option("--adopt", is_flag=True, help="Take over a slot whose checkpoint was lost.")
@click.option(
    "--position",
    "text",
    metavar="POSITION",
    help="With --adopt: the source's position by 'headrace bridge positions'; the chain goes on after it.",
)
@click.option(
    "--new-epoch", is_flag=True, help="With --adopt: start a new epoch; what the slot still has is sent again."
)
@click.option("--snapshot", "copies", is_flag=True, help="Ask for a snapshot of every published table.")
@click.option("--replace", is_flag=True, help="With --snapshot: a truncate record goes ahead of each table's rows.")
@click.option(
    "--replica-identity",
    "identity",
    type=click.Choice(["full"]),
    help="Alter tables whose rows the log cannot identify, after asking; without it they are left out. PostgreSQL alone.",
)
@click.option("--yes", is_flag=True, help="With --replica-identity: do not ask.")
def init(
    path: str,
    *,
    adopt: bool,
    text: str | None,
    new_epoch: bool,
    copies: bool,
    replace: bool,
    identity: str | None,
    yes: bool,
) -> None:
    """Make publication, slot and checkpoint; what is there already is verified and left as it is.

    Tables whose updates the server would refuse once they are published are left out. Safe to run again after a crash at any
    moment. Nothing is dropped.
    """
    from edge.commands.lifecycle import Adoption, alter_replica_identities, initialise

    if adopt != (text is not None or new_epoch) or (text is not None and new_epoch):
        raise ConfigurationError(
            "--adopt goes with exactly one of --position POSITION and --new-epoch",
            hint="Take the position from 'headrace bridge positions'; without --adopt give neither.",
        )
    if replace and not copies:
        raise ConfigurationError("--replace goes with --snapshot", hint="Give both, or neither.")
    if yes and identity is None:
        raise ConfigurationError("--yes goes with --replica-identity", hint="Give both, or neither.")
    adoption = Adoption(Position.parse(text) if text else None) if adopt else None
    config = load(path, EdgeFile)
    if identity is not None:

        def consents(statements: list[str]) -> bool:
            echo("\n".join(statements))
            if not (yes or sys.stdin.isatty()):
                raise ConfigurationError("nobody can be asked: standard input is no terminal", hint="Add --yes.")
            return yes or click.confirm("Run these statements?")

        alter_replica_identities(config, echo, consents)
    initialise(config, adoption, echo, snapshot=copies, replace=replace)


@edge.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(path: str, *, as_json: bool) -> None:
    """Look at everything that the source needs, change nothing, and report what is wrong and how to fix it.

    Before 'init' and at any time after it, next to a running edge too. Exit code 3 when something is wrong; warnings alone
    are 0.
    """
    from edge.doctor.examine import examine
    from headrace.findings import as_json as in_json
    from headrace.findings import is_wrong, show
    from headrace.terminal import Terminal

    config = load(path, EdgeFile)
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        # What would be logged is among the findings.
        logging.getLogger("edge").setLevel(logging.CRITICAL)
        logging.getLogger("proton").setLevel(logging.CRITICAL)
    findings = list(examine(config))
    if as_json:
        echo(in_json(findings))
    else:
        show(findings, Terminal())
    if is_wrong(findings):
        sys.exit(NeedsOperator.exit_code)


@edge.command()
@_CONFIG
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, and whether something is unsent.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Give up changes that headquarters does not have.")
@click.option(
    "--state-only", is_flag=True, help="Leave the server alone, as one that no longer exists; goes with --force."
)
def retire(path: str, *, dry_run: bool, yes: bool, force: bool, state_only: bool) -> None:
    """Take the source out of capture: drop its slot and publication, and remove the state folder.

    Refuses while an edge runs, and while the server or the spool holds changes that were not sent. Records in Kafka and tables in
    the lake stay. Then remove the source from the bridges' files and run 'headrace bridge forget'.
    """
    from edge.commands.lifecycle import retire as retire_source

    if state_only and not force:
        raise ConfigurationError("--state-only goes with --force", hint="Give both, or neither.")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise ConfigurationError("nobody can be asked: standard input is no terminal", hint="Add --yes, or --dry-run.")
    config = load(path, EdgeFile)

    def consents() -> bool:
        return not dry_run and (yes or click.confirm(f"Retire {config.source.name}?"))

    if not retire_source(config, echo, consents, force=force, state_only=state_only):
        echo("Nothing was removed.")
        return
    echo(f"Next: take {config.source.name} out of the bridges' files, and run")
    echo(f"  headrace bridge forget {config.source.name} --config FILE")


@edge.command()
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def position(path: str, *, as_json: bool) -> None:
    """Show the checkpoint and the slot."""
    values = read_position(load(path, EdgeFile))
    if as_json:
        echo(json.dumps(values))
        return
    width = max(map(len, values))
    for name, value in values.items():
        echo(f"{name:{width}}  {'-' if value is None else value}")


def read_position(config: EdgeFile) -> dict[str, str | int | None]:
    """Return the checkpoint's values and the server's, by their names; what does not exist is None."""
    engine = engine_of(config)
    checkpoint = engine.state.read(config.source.name)
    return {
        "source": config.source.name,
        "acknowledged": checkpoint.acknowledged if checkpoint else None,
        "spooled": checkpoint.spooled or None if checkpoint else None,
        "epoch": checkpoint.position.epoch if checkpoint else None,
    } | engine.server_status(checkpoint)


def read_status(config: EdgeFile) -> list[SourceStatus]:
    """Return the status of the edge's source by its checkpoint and, if it answers, its server."""
    engine = engine_of(config)
    checkpoint = engine.state.read(config.source.name)
    warnings, retained = [], None
    try:
        retained = engine.server_status(checkpoint)["retained_wal_bytes"]
    except ReplicationError as error:
        warnings.append(error.message)
    warnings += TableHistory(engine.state.folder, config.source.name).warnings.values()
    warnings += SnapshotStore(engine.state.folder, config.source.name).plan().failures()
    return [
        SourceStatus(
            source=config.source.name,
            state="running" if engine.state.in_use() else "not running",
            reason="" if checkpoint else f"no checkpoint in {engine.state.path}: 'headrace edge init' was not run",
            position=checkpoint.acknowledged if checkpoint else None,
            retained_wal_bytes=retained if isinstance(retained, int) else None,
            warnings=warnings,
        )
    ]
