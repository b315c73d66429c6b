"""A share of a stream's tables, which a task of its own may bring up ahead of the load that publishes them.

Which group a table is in depends on its name alone, so no two tasks write the same table, whatever bronze they see.
"""

import re
import zlib
from typing import NamedTuple, Self

from headrace.errors import ConfigurationError


class TableGroup(NamedTuple):
    """One group of several, numbered from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the group that `2/4` names, the second of four; raise ConfigurationError for another text."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        group = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= group.number <= group.of:
            raise ConfigurationError(f"{text!r} names no group of tables", hint="Write NUMBER/COUNT, such as 2/4.")
        return group

    def has(self, table: str) -> bool:
        """Whether a table, by its source's `schema.table`, is in the group."""
        return zlib.crc32(table.encode()) % self.of == self.number - 1
