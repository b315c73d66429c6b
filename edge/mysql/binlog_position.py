"""Places in a binlog: a file's number and an offset in it as one number, which grows as the log does (`number << 32 | offset`).

A server begins a new file before it begins a transaction beyond `max_binlog_size`, 1 GiB at most, so every transaction begins
at an offset that fits. A last one may end beyond 4 GiB: its place is then the file's last.
"""

import re

from headrace.errors import CorruptInput

_NAME = re.compile(r"(.*)\.(\d{1,9})")
_LARGEST = 0xFFFFFFFF


def place(file_number: int, offset: int) -> int:
    """Return the place as a number."""
    return file_number << 32 | min(offset, _LARGEST)


def split_name(file: str) -> tuple[str, int]:
    """Return the base name and the number of a binlog file; raise CorruptInput when it is none."""
    match = _NAME.fullmatch(file)
    if match is None:
        raise CorruptInput(f"{file[:60]!r} is no binlog file", hint="A binlog file looks like binlog.000042.")
    return match[1], int(match[2])


def file_name(base: str, number: int) -> str:
    """Return the name of a binlog file."""
    return f"{base}.{number:06}"
