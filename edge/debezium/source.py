"""What is read of Debezium's records: a change with its source block, and what a Connect schema says of a column's type."""

from typing import Any, Final

import msgspec

_TYPE: Final = "__debezium.source.column."
_UNLIMITED: Final = 2_147_483_647


class Source(msgspec.Struct):
    """What a record's source block has that is needed here."""

    ts_ms: int
    snapshot: str | bool | None = None
    db: str = ""
    schema: str = ""
    table: str = ""
    txId: int | str | None = None  # noqa: N815 - Debezium's name.
    server_id: int = 0
    gtid: str | None = None
    file: str = ""
    row: int = 0
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: int | str | None = None
    scn: str | None = None
    commit_scn: str | None = None
    rs_id: str | None = None
    ssn: int | None = None
    redo_thread: int | None = None
    collection: str | None = None
    ord: int | None = None
    lsid: str | None = None
    txnNumber: int | None = None  # noqa: N815 - as above.

    def __post_init__(self) -> None:
        """Take a collection of MongoDB's for a table."""
        self.table = self.collection or self.table


class Change(msgspec.Struct):
    """A change as Debezium's envelope has it."""

    source: Source
    op: str
    #: Rows; MongoDB's are documents as text.
    before: Any = None
    after: Any = None


def described(field: dict[str, Any]) -> tuple[str, int | None, int | None]:
    """Return the source's name of a column's type, its length and its scale."""
    parameters = field.get("parameters") or {}
    length, scale = (_number(parameters.get(f"{_TYPE}{each}")) for each in ("length", "scale"))
    return str(parameters.get(f"{_TYPE}type", "text")), length, scale


def _number(text: str | None) -> int | None:
    number = int(text) if text is not None and text.lstrip("-").isdigit() else None
    return None if number is None or number < 0 or number == _UNLIMITED else number
