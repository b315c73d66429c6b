"""`headrace jars`: the jars that loads need, for who has no checkout whose `make setup` fetches them."""

import click
from rich.console import Console

from headrace.java import jar_folder
from infra.local import jars as groups


@click.command()
@click.argument(
    "purposes", nargs=-1, type=click.Choice(list(groups.PURPOSES)), metavar="[lake|local|object-store|demo]..."
)
def jars(purposes: tuple[str, ...]) -> None:
    """Fetch jars, once: for loads and queries (`lake`, the default), a broker on this machine (`local`), a lake on S3
    (`object-store`), or the demo (`demo`, 500 MB more).

    Java and the extra `spark` must be installed. They are kept in HEADRACE_JARS, or in the user's data folder, which commands and
    Airflow's DAGs know. HEADRACE_IVY_SETTINGS names an Ivy settings file where the usual repository cannot be reached.
    """
    into = jar_folder()
    wanted = [group for purpose in purposes or ("lake",) for group in groups.PURPOSES[purpose]]
    console = Console(highlight=False, soft_wrap=True, markup=False)
    groups.fetch_all(into, console, wanted, groups.read_sums())
    click.echo(f"headrace: the jars are in {into}")
