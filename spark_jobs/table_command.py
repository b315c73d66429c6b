"""`headrace lake drop`: what an operator does to one table of a stream for good.

Spark is started only by what needs it, as for the other commands.
"""

import json
from dataclasses import asdict

import click

from spark_jobs import command_options


@click.command()
@click.argument("stream")
@click.argument("table")
@command_options.config
@click.option("--undo", is_flag=True, help="Take a drop back.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@command_options.as_json
def drop(stream: str, table: str, config: str, *, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Drop TABLE (SCHEMA.TABLE at the source) of STREAM from the lake: queries, lists and verification no longer have it.

    For a table that its source dropped, or that is no longer wanted. Bronze keeps its records, and loads pass over new ones.
    Maintenance removes its files after [lake] keep_days. With --undo the next load brings it back. Loads may run meanwhile.
    """
    file = command_options.file_of(config, stream)
    from spark_jobs.maintenance import drop as job
    from spark_jobs.session import session

    done = (job.undo if undo else job.drop)(session(file, writes=not dry_run), file, stream, table, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(asdict(done) | {"dry_run": dry_run}))
        return
    console = command_options.console()
    if done.done == "nothing":
        console.print(f"{table} of {stream} is {'not dropped' if undo else 'dropped already'}: nothing to do")
        return
    console.print(f"{'would be ' if dry_run else ''}{done.done}: {table} of {stream}, {done.name}")
    if undo:
        console.print("  the next load brings it back, with what came to bronze since")
        return
    for folder in done.folders:
        console.print(f"  {folder}: maintenance removes it after {done.removed_after}")
    console.print("  bronze keeps its records, and loads pass over new ones")
