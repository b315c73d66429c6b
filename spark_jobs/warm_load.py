"""`headrace lake load` where a warm process listens: that loads, and its answer is printed as the command prints a report.

Spark is imported for the bars of a load that takes a while, and for nothing else. Called by the command.
"""

import json
import sys
from contextlib import ExitStack
from typing import Literal

import click

from headrace import warm_loads
from headrace.configuration.lake import LakeFile
from headrace.warm_loads import OnProgress, Request


def load(
    lake: LakeFile, stream: str, only: Literal["bronze", "silver"] | None, *, accept_gap: bool, as_json: bool
) -> bool:
    """Let the server load and print its report; return False where none does. Raises the error with which the load ended."""
    connection = warm_loads.connect(lake.serve.loads) if lake.serve.loads else None
    if connection is None:
        return False
    styled = sys.stdout.isatty()
    request = Request(config=lake.path, stream=stream, only=only, accept_gap=accept_gap, styled=styled)
    shown: list[OnProgress] = []
    with connection, ExitStack() as ending:

        def on_progress(step: str, done: int, todo: int) -> None:
            if not shown:
                from rich.console import Console

                from spark_jobs import load as job

                shown.append(ending.enter_context(job.show_progress(Console(stderr=True))))
            shown[0](step, done, todo)

        answer = warm_loads.load(connection, request, on_progress)
    if answer is None:
        return False
    if answer.report is not None:
        click.echo(json.dumps(answer.report) if as_json else answer.text, nl=as_json)
    answer.check()
    return True
