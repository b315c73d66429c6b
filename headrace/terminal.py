"""What is printed with styles: no text from outside is taken for markup, and none reaches the terminal with commands for it.

A string that a `Terminal` prints is text, whatever brackets it has. Styles come from `styled`, whose template is a constant, and
`in_style`. Rich's own `escape` is not enough: of two names, each escaped, `[/x` and `y]` are markup together.

Where there is no terminal, nothing is cut, and progress is a line in a log now and then, so that what takes hours does not seem
to hang.
"""

import re
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.style import Style
from rich.text import Span, Text

from headrace.printable import printable

if TYPE_CHECKING:
    from rich.progress import TextColumn

#: A place for a value in a template, with how it is formatted.
_PLACE = re.compile(r"\{(?::([^{}]*))?\}")
#: Columns where there is no terminal.
_UNCUT = 1_000_000
#: Seconds between two lines of progress.
_EVERY = 30.0


class Terminal(Console):
    """Where it is printed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"highlight": False} | options), markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as text for the terminal; called for all strings that are printed, those in tables too."""
        return super().render_str(printable(text), **options | {"markup": False, "emoji": False})


def uncut(file: TextIO | None = None) -> Terminal:
    """Return what prints to a file, or to standard output, and cuts nothing where that is no terminal."""
    return Terminal(file=file, width=None if (file or sys.stdout).isatty() else _UNCUT)


class Occasionally:
    """Passes a line on when the last one was long ago; the first line, too, comes only after that time."""

    def __init__(self, write: Callable[[str], None], *, now: Callable[[], float] = monotonic) -> None:
        self._write, self._now = write, now
        self._last = now()

    def write(self, line: str) -> None:
        """Write the line if it is time for one."""
        if self._now() - self._last >= _EVERY:
            self._last = self._now()
            self._write(line)


def styled(template: str, *values: object) -> Text:
    """Return rich's markup with values, as text, at its places `{}`, `{:,}`; a value with styles of its own keeps them."""
    frame, whole, end = Text.from_markup(template, emoji=False), Text(), 0
    for match, value in zip(_PLACE.finditer(frame.plain), values, strict=True):
        whole.append_text(frame[end : match.start()])
        text = value.copy() if isinstance(value, Text) else Text(printable(format(value, match[1] or "")))
        for span in frame[match.start() : match.end()].spans:
            text.spans.insert(0, Span(0, len(text), span.style))
        whole.append_text(text)
        end = match.end()
    return whole.append_text(frame[end:])


def in_style(value: object, style: str | Style) -> Text:
    """Return a value in a style."""
    return Text(printable(str(value)), style=style)


def description_column() -> "TextColumn":
    """Return the column of a progress bar with what is being done."""
    from rich.progress import TextColumn

    return TextColumn("{task.description}", markup=False)
