"""`headrace jars`: the jars that loads need, for who has no checkout whose `make setup` fetches them."""

import click
from rich.console import Console

from headrace.java import jar_folder
from infra.local import jars as groups
from infra.local import log_store


@click.command()
@click.argument("purposes", nargs=-1, type=click.Choice(["lake", "object-store"]), metavar="[lake|object-store]...")
def jars(purposes: tuple[str, ...]) -> None:
    """Fetch the jars for loads and queries, once: PURPOSES are `lake` (the default) and `object-store` (S3).

    Java and the extra `spark` must be installed. They are kept in HEADRACE_JARS, or in the user's data folder, which commands and
    Airflow's DAGs know. HEADRACE_IVY_SETTINGS names an Ivy settings file where the usual repository cannot be reached.
    """
    into = jar_folder()
    wanted = [group for purpose in purposes or ("lake",) for group in groups.PURPOSES[purpose]]
    groups.fetch_all(into, Console(highlight=False, soft_wrap=True, markup=False), wanted)
    if "object-store" in purposes:
        log_store.make(into)
    click.echo(f"headrace: the jars are in {into}")
