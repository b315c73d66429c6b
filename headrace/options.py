"""Options that the commands of several parts have."""

import click

HOLD = click.option(
    "--hold",
    is_flag=True,
    help="When only an operator can go on, stay up, not ready, and show why, instead of ending; a signal ends it with the exit "
    "code that it would have had. For supervisors that start a process again whatever its exit code is.",
)
