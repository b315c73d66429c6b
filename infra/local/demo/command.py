"""`headrace demo`: the main job on this machine, on real input, with a screen at its end that a person can read."""

from pathlib import Path

import click


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
@click.option("--keep", is_flag=True, help="Leave everything running, to play with.")
@click.option("--stop", is_flag=True, help="Stop a demo that --keep left running, and remove its folder.")
def demo(*, folder: Path, scale: int, clients: int, seconds: int, rate: int, keep: bool, stop: bool) -> None:
    """Run the main job: three databases under load, captured, carried, loaded by Airflow, verified, asked in SQL.

    Starts PostgreSQL in two regions, MariaDB in a third, and Kafka, an edge for each region and the bridge. PostgreSQL's own
    pgbench writes to two regions and customers order in the third, all the while; Airflow runs the load twice, the second time
    only what came since; then every table is compared with its source.
    """
    from infra.local.demo.demo import Demo, forget

    if stop:
        forget(folder)
        click.echo(f"Stopped the demo in {folder} and removed it.")
        return
    Demo(folder, keep=keep).run(scale=scale, clients=clients, seconds=seconds, rate=rate)
