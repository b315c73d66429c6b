"""One step of a stream's load under spark-submit: `spark-submit ... submit.py STREAM --config FILE --step bronze|silver`.

`python -m spark_jobs.submit` is the same without spark-submit. spark-submit takes a file, this one: of the installed package, or,
where a cluster runs the driver, a copy of it next to an installed package. Of silver, `--group 2/4` brings the second of four
groups of tables up ahead, for the step without a group to publish.

Exits 0 when the step is done, else with the code of its error, after a line with what happened and one with what to do.
Called by Airflow's SparkSubmitOperator; the same code as `headrace lake load`.
"""

import logging
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
if (_HERE / "__init__.py").exists():
    # spark-submit puts this file's own folder first, where modules are named for what they are about, not for the world.
    sys.path[0] = str(_HERE.parent)

import click  # noqa: E402 - as above.

from headrace.configuration.lake import LakeFile  # noqa: E402 - as above.
from headrace.configuration.load import load as load_file  # noqa: E402 - as above.
from headrace.errors import ReplicationError  # noqa: E402 - as above.
from headrace.printable import echo  # noqa: E402 - as above.
from headrace.terminal import Terminal  # noqa: E402 - as above.
from spark_jobs import load, preflight  # noqa: E402 - as above.
from spark_jobs.session import session  # noqa: E402 - as above.
from spark_jobs.silver.tables_load import TableGroup  # noqa: E402 - as above.


@click.command()
@click.argument("stream")
@click.option("--config", required=True, type=click.Path(dir_okay=False), help="The lake's file.")
@click.option("--step", type=click.Choice(["bronze", "silver"]), help="One step alone; both when not given.")
@click.option(
    "--group", metavar="NUMBER/COUNT", help="Of silver the tables of one group alone, which are not published."
)
@click.option(
    "--report-stopped", is_flag=True, help="Exit with 0 although tables stopped, when all others are published."
)
def submit(stream: str, config: str, step: load.Step | None, group: str | None, *, report_stopped: bool) -> None:
    """Run one step of a stream's load."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        lake = load_file(find_file(config), LakeFile)
        lake.stream(stream)
        tables = TableGroup.parse(group) if group else None
        outlook = preflight.look(lake, stream, step)
        done = outlook.report or _run(lake, stream, step, tables, few=outlook.few)
        load.show(Terminal(soft_wrap=True), done)
        if not report_stopped:
            done.check()
    except ReplicationError as error:
        echo(f"headrace: {error.message}", err=True)
        if error.hint:
            echo(f"What to do: {error.hint}", err=True)
        sys.exit(error.exit_code)


def find_file(config: str) -> str:
    """Return where the lake's file is: a cluster puts what `spark.files` names into the driver's current folder."""
    brought = Path(config).name
    return brought if not Path(config).exists() and Path(brought).exists() else config


def _run(lake: LakeFile, stream: str, step: load.Step | None, group: TableGroup | None, *, few: bool) -> load.Report:
    spark = session(lake, name=f"headrace {stream} {step or 'load'}", few=few)
    try:
        with load.show_progress(Terminal(stderr=True)) as on_progress:
            return load.run(spark, lake, stream, only=step, group=group, on_progress=on_progress)
    finally:
        spark.stop()


if __name__ == "__main__":
    submit()
