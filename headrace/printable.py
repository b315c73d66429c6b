"""Text from outside on a terminal: what the terminal would take for a command is shown by its code.

Names of tables, and what edges, servers and records say, come from others. What is printed as it is goes through `echo`; what has
styles, through `headrace.terminal`.
"""

import re

import click

#: Control characters (C0, DEL and C1) but for line breaks and tabs; other ends of lines; what turns the direction of
#: text. Those from DEL on as JSON writes them: a document that is printed stays the same document.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text for a terminal: control characters, but for line breaks and tabs, by their codes."""
    return _CONTROL.sub(_code, text)


def echo(text: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line that may hold text from outside."""
    click.echo(printable(text if isinstance(text, str) else text.decode()), err=err, nl=nl)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x7F else f"\\u{number:04x}"
