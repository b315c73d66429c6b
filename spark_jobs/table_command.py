"""`headrace lake drop` and `headrace lake erase`: what an operator does to one table of a stream for good.

Spark is started only by what needs it, as for the other commands.
"""

import json
from dataclasses import asdict
from pathlib import Path

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
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=not dry_run)
    done = (job.undo if undo else job.drop)(spark, file, stream, table, dry_run=dry_run)
    if not dry_run:
        metastore.after_load(spark, file, stream)
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


@click.command()
@click.argument("stream")
@click.argument("table")
@click.argument("keys", nargs=-1)
@command_options.config
@click.option(
    "--file", "keys_file", type=click.Path(exists=True, dir_okay=False), help="A file with a key in each line."
)
@click.option("--source", "sources", multiple=True, help="Erase rows of this source alone; may be repeated.")
@click.option(
    "--related",
    multiple=True,
    metavar="SCHEMA.TABLE.COLUMN",
    help="Erase rows too whose column has one of KEYS; may be repeated.",
)
@click.option("--reason", default="", help="Why, for the record: a number of a request, no name of a person.")
@click.option("--dry-run", is_flag=True, help="Count what would be erased, and erase nothing.")
@command_options.as_json
def erase(
    stream: str,
    table: str,
    keys: tuple[str, ...],
    config: str,
    keys_file: str | None,
    sources: tuple[str, ...],
    related: tuple[str, ...],
    reason: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Erase the rows of TABLE (SCHEMA.TABLE at the source) of STREAM that have these KEYS from the whole lake.

    A key of several columns is a JSON array. Old versions keep the rows until maintenance removes their files. It can be run
    again when it was interrupted. Loads may run meanwhile.
    """
    file = command_options.file_of(config, stream)
    lines = Path(keys_file).read_text(encoding="utf-8").splitlines() if keys_file else []
    all_keys = list(dict.fromkeys([*keys, *(line for line in lines if line)]))
    if not all_keys:
        raise click.UsageError("Give KEYS, or --file with a key in each line.")
    if unknown := sorted(set(sources) - set(file.stream(stream).sources)):
        raise click.UsageError(f"Stream {stream} has no source {', '.join(unknown)}.")
    if not dry_run and not reason:
        raise click.UsageError("Give --reason: it is recorded with the erasure.")
    from spark_jobs.maintenance import erase as job
    from spark_jobs.maintenance import related_rows
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=not dry_run)
    # What names the row goes first: it could not be found once the keys were forgotten.
    ways = [related_rows.find_keys(spark, file, stream, path, all_keys, sources) for path in related]
    reports = [
        job.erase(spark, file, stream, name, given, sources=sources, reason=reason, dry_run=dry_run)
        for name, given in [*ways, (table, all_keys)]
        if given
    ]
    if not dry_run:
        metastore.after_load(spark, file, stream)
    if as_json:
        others = [asdict(report) for report in reports[:-1]]
        click.echo(json.dumps(asdict(reports[-1]) | {"dry_run": dry_run, "related": others}, ensure_ascii=False))
        return
    console = command_options.console()
    for done in reports:
        console.print(f"{'would be ' if dry_run else ''}erased from {done.table} of {stream}: {done.keys} key(s)")
        for place, count in done.counts.items():
            console.print(f"  {place}: {count:,}")
        for other in done.other_keys:
            console.print(f"  rows had another key before or after a change of key, which is to be given too: {other}")
    console.print("not reached:")
    for place in dict.fromkeys(place for done in reports for place in done.not_reached):
        console.print(f"  {place}")
