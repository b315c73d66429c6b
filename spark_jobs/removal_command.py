"""Commands of `headrace lake` that take names, tables or rows from the lake: `drop`, `rename` and `erase`.

Spark is started only by what needs it, as for the other commands.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.printable import echo
from headrace.terminal import uncut
from spark_jobs.table_command import AS_JSON, CONFIG, file_of

if TYPE_CHECKING:
    from spark_jobs.maintenance.erase import EraseReport


@click.command()
@click.argument("stream")
@click.argument("table")
@CONFIG
@click.option("--undo", is_flag=True, help="Take a drop or a rename back.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@AS_JSON
def drop(stream: str, table: str, config: str, *, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Drop TABLE (SCHEMA.TABLE at the source) of STREAM from the lake: queries, lists and verification no longer have it.

    For a table that its source dropped, or that is no longer wanted. Bronze keeps its records, and loads pass over new ones.
    Maintenance removes its files after [lake] keep_days. With --undo the next load brings it back. Loads may run meanwhile.
    """
    file = file_of(config, stream)
    from spark_jobs.maintenance import drop as job
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=not dry_run)
    done = (job.undo if undo else job.drop)(spark, file, stream, table, dry_run=dry_run)
    if not dry_run:
        metastore.after_load(spark, file, stream)
    if as_json:
        echo(json.dumps(asdict(done) | {"dry_run": dry_run}))
        return
    console = uncut()
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
@click.argument("former")
@click.argument("table")
@CONFIG
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@AS_JSON
def rename(stream: str, former: str, table: str, config: str, *, dry_run: bool, as_json: bool) -> None:
    """Record that FORMER was renamed to TABLE (both SCHEMA.TABLE) at the sources of STREAM: its history goes on.

    Copy TABLE by its new name and load it first. Queries, lists and verification no longer have FORMER, but its history stays:
    full_history shows it with that of TABLE. 'headrace lake drop STREAM FORMER --undo' takes it back. Loads may run meanwhile.
    """
    file = file_of(config, stream)
    from spark_jobs.maintenance import rename as job
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=not dry_run)
    done = job.rename(spark, file, stream, former, table, dry_run=dry_run)
    if not dry_run:
        metastore.after_load(spark, file, stream)
    if as_json:
        echo(json.dumps(asdict(done) | {"dry_run": dry_run}, ensure_ascii=False))
        return
    console = uncut()
    if done.done == "nothing":
        console.print(f"{former} of {stream} is renamed to {table} already: nothing to do")
        return
    console.print(
        f"{'would be ' if dry_run else ''}renamed: {former} of {stream} to {table}; {done.name} has all versions"
    )
    for source, count in done.ended.items():
        console.print(
            f"  {source}: {count:,} rows were current by the former name and have no version by the present one: "
            "they end where that begins"
        )
    for name in done.misfits:
        console.print(f"  column {name}: former values do not fit its type, and are in the former history alone")
    console.print(f"  loads pass over new records of {former}")


@click.command()
@click.argument("stream")
@click.argument("table")
@click.argument("keys", nargs=-1)
@CONFIG
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
@AS_JSON
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
    file = file_of(config, stream)
    lines = Path(keys_file).read_text(encoding="utf-8").splitlines() if keys_file else []
    all_keys = list(dict.fromkeys([*keys, *(line for line in lines if line)]))
    if not all_keys:
        raise click.UsageError("Give KEYS, or --file with a key in each line.")
    if unknown := sorted(set(sources) - set(file.stream(stream).sources)):
        raise click.UsageError(f"Stream {stream} has no source {', '.join(unknown)}.")
    if not dry_run and not reason:
        raise click.UsageError("Give --reason: it is recorded with the erasure.")
    from spark_jobs.maintenance import related_rows
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=not dry_run)
    reports, none = related_rows.erase_all(
        spark, file, stream, (table, all_keys), related, sources=sources, reason=reason, dry_run=dry_run
    )
    if not dry_run:
        metastore.after_load(spark, file, stream)
    if as_json:
        others = [asdict(report) for report in reports[:-1]]
        done_last = asdict(reports[-1]) | {"dry_run": dry_run, "related": others, "related_without_rows": none}
        echo(json.dumps(done_last, ensure_ascii=False))
        return
    _print_erased(stream, reports, none, dry_run=dry_run)


def _print_erased(stream: str, reports: "list[EraseReport]", none: list[str], *, dry_run: bool) -> None:
    console = uncut()
    for path in none:
        console.print(f"{path}: no row names these keys")
    for done in reports:
        console.print(f"{'would be ' if dry_run else ''}erased from {done.table} of {stream}: {done.keys} key(s)")
        for place, count in done.counts.items():
            console.print(f"  {place}: {count:,}")
        for other in done.other_keys:
            console.print(f"  rows had another key before or after a change of key, which is to be given too: {other}")
    console.print("not reached:")
    for place in dict.fromkeys(place for done in reports for place in done.not_reached):
        console.print(f"  {place}")
