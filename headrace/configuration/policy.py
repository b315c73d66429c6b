"""What may leave the region, and in which form: the section `[policy]` of an edge's file.

Patterns are those of file names: `*` for any run of characters, `?` for one. A table is named `schema.table`, a column
`schema.table.column`.
"""

from typing import Annotated, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.names import COLUMN_PATTERN, TABLE_PATTERN
from headrace.configuration.secret import Secret

TablePattern = Annotated[str, Meta(pattern=TABLE_PATTERN)]
ColumnPattern = Annotated[str, Meta(pattern=COLUMN_PATTERN)]


class ColumnRule(Section, frozen=True, kw_only=True):
    """What is done to columns."""

    columns: Annotated[list[ColumnPattern], Meta(min_length=1)]
    #: `exclude`: not captured at all; `mask`: a fixed text; `hash`: HMAC-SHA-256 of the value's text, in hexadecimal, so the same
    #: for the same value in any column; `truncate`: its first characters.
    action: Literal["exclude", "mask", "hash", "truncate"]
    #: The value of a masked column.
    mask: str = "****"
    #: How many characters a truncated column keeps.
    characters: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        """Refuse a truncation without its length."""
        if (self.action == "truncate") != (self.characters is not None):
            raise ValueError("give 'characters' with action = \"truncate\", and only then")


class Policy(Section, frozen=True, kw_only=True):
    """The section; without it everything that the publication carries leaves."""

    #: Tables whose changes leave, and of no others; empty for all.
    include_tables: list[TablePattern] = []
    #: Tables whose changes stay, even if included above.
    exclude_tables: list[TablePattern] = []
    #: The key of all hashes. The same key in several regions gives the same hashes there.
    hash_key: Secret | None = None
    #: The first rule that matches a column counts.
    columns: list[ColumnRule] = []

    def __post_init__(self) -> None:
        """Refuse hashes without a key."""
        if self.hash_key is None and any(rule.action == "hash" for rule in self.columns):
            raise ValueError("action = \"hash\" needs 'hash_key'")
