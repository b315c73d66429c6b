"""Passing over one transaction at which the edge stopped: `headrace edge pass`.

Guarantees that nothing is passed but the transaction at which decoding ended, by name and with consent, while no edge runs.
"""

import json
import sys
import time
from collections.abc import Callable

import click

from edge.engine_registry import engine_of
from edge.progress.passed import Passed, PassedTransactions
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.requests.asking import caller


@click.command("pass")
@click.option(
    "--config", "path", required=True, metavar="FILE", help="The edge's TOML file (docs/edge.md describes it)."
)
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
        click.echo("Nothing was passed.")
    elif as_json:
        click.echo(json.dumps({"transaction": passed.transaction, "by": passed.by, "at_ms": passed.at_ms}))
    else:
        click.echo(
            f"Transaction {passed.transaction} is passed when the edge runs again; then copy the tables that need it."
        )


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
