"""What is done with each message: printed, or given to a command. A message is accepted only when that is done."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from headrace.errors import NeedsOperator
from headrace.receive.message import Received

#: Characters of an environment variable; the system takes 128 kB.
_LONGEST_VARIABLE = 16_000

#: Does it, and returns whether it succeeded.
Handle = Callable[[Received], bool]


def printing(*, as_json: bool) -> Handle:
    """Return what writes each message as a line to standard output, its body or JSON, and flushes it."""
    out = sys.stdout.buffer

    def handle(message: Received) -> bool:
        try:
            out.write((message.line() if as_json else message.body) + b"\n")
            out.flush()
        except OSError as error:
            raise NeedsOperator(
                f"standard output takes nothing more: {error.strerror}", hint="What was not written was not accepted."
            ) from error
        return True

    return handle


def piping(command: Sequence[str], *, as_json: bool) -> Handle:
    """Return what runs a command for each message, with its body or JSON as standard input; exit code 0 is success."""

    def handle(message: Received) -> bool:
        about = {"HEADRACE_ID": message.id, "HEADRACE_ADDRESS": message.address}
        if isinstance(message.key, str):
            about["HEADRACE_KEY"] = message.key
        # One that no environment takes is left out, and is in the JSON.
        about = {name: text for name, text in about.items() if "\0" not in text and len(text) <= _LONGEST_VARIABLE}
        given = message.line() + b"\n" if as_json else message.body
        try:
            done = subprocess.run(command, input=given, env=os.environ | about, check=False)
        except OSError as error:
            raise NeedsOperator(
                f"{command[0]!r} cannot be run: {error.strerror}", hint="Check the command after '--'."
            ) from error
        return done.returncode == 0

    return handle
