"""Logs: for people as lines of text, for machines one JSON object a line.

A command speaks to a person, so it logs text. A part that runs for long (`serve`) logs JSON unless a terminal reads it, and each
line names its source. No line holds row values or secrets, by a rule for every caller; what is not printable in a line is
written as an escape, so that a name from outside forges no line and steers no terminal. An error that is expected has no
traceback; one that is not has. Called by the root command, by the `run` of edge and bridge, and by a source's thread.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from headrace.configuration.value_types import SOURCE_NAME
from headrace.errors import ReplicationError

FORMATS = ("auto", "text", "json")
LEVELS = ("debug", "info", "warning", "error")

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
#: What every record has; whatever else it has was given with it and becomes a field.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_SOURCE = re.compile(SOURCE_NAME)
#: What starts a line, steers a terminal, turns text around or has no form in UTF-8: controls, separators, bidi marks, half pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc\ufffe\uffff\ud800-\udfff]"
)

_source: ContextVar[str] = ContextVar("source", default="")


class _Setting:
    """How this process logs."""

    form = "auto"
    part = ""
    source = ""
    structured = False


def configure(form: str, level: str) -> None:
    """Log from this level on, as text for now: a part that runs for long calls `serve`."""
    _Setting.form, _Setting.structured = form, False
    logging.basicConfig(level=level.upper(), stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(TextFormatter(_TEXT))
    if form == "json":
        _to_json()


def serve(part: str, source: str = "") -> None:
    """Log as a part that runs for long; every line that is not `about` another source is of this one, if one is named."""
    _Setting.part, _Setting.source = part, source
    if _Setting.form == "auto" and not sys.stderr.isatty():
        _to_json()


def about(source: str) -> None:
    """Have what this thread logs from now on attributed to a source."""
    _source.set(source)


def structured() -> bool:
    """Return whether lines are JSON."""
    return _Setting.structured


def log_error(error: ReplicationError) -> None:
    """Log the error that ends a command, with its hint."""
    fields = {"hint": error.hint, "error": type(error).__name__, "exit_code": error.exit_code}
    logging.getLogger("headrace").error("%s", error.message, extra=fields)


def _to_json() -> None:
    _Setting.structured = True
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())


def escape_line(text: str) -> str:
    """Return a text in one line: what is not printable as an escape that JSON takes as well."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class TextFormatter(logging.Formatter):
    """Lines of text; only a traceback has several, and none of them has what is not printable."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name.
        """Return the line without a traceback."""
        return escape_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above.
        """Return a traceback."""
        return "\n".join(map(escape_line, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, part, source, logger, message, and the fields given with `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        milliseconds = int(record.created * 1000)
        fields: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{milliseconds % 1000:03}Z",
            "level": record.levelname.lower(),
            "part": _Setting.part,
            "source": _begins_with(record) or _source.get() or _Setting.source,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _USUAL and value is not None}
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.exc_info[1], ReplicationError):
            fields["traceback"] = self.formatException(record.exc_info)
        line = json.dumps(
            {name: value for name, value in fields.items() if value != ""}, ensure_ascii=False, default=str
        )
        return escape_line(line)


def _begins_with(record: logging.LogRecord) -> str:
    """Return the source that a line begins with, as all lines of a bridge do that are about one; empty for others."""
    if isinstance(record.msg, str) and record.msg.startswith("%s: ") and isinstance(record.args, tuple) and record.args:
        first = str(record.args[0])
        return first if _SOURCE.match(first) else ""
    return ""


#: The shortest time between two lines, in seconds.
_QUIET_SECONDS = 10.0


class RateLimitedLog:
    """Logs at most one line every ten seconds, with the number of lines that were left out."""

    def __init__(self, log: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._until = 0.0
        self._left_out = 0

    def __call__(self, text: str, *values: object) -> None:
        """Log a line, or count it."""
        now = self._clock()
        if now < self._until:
            self._left_out += 1
            return
        more, self._left_out = self._left_out, 0
        self._until = now + _QUIET_SECONDS
        self._log(text + (f" (and {more} others before)" if more else ""), *values)
