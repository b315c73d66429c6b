"""Where a record in Avro comes from, read without its table's schema: the envelope's fields are ahead of the rows.

It holds for the layout of headrace/schemas/avro.py alone.
"""

from typing import Final, NamedTuple

from headrace.errors import CorruptInput

#: What a record in Avro begins with; the id of its schema follows, in four bytes.
MARK: Final = b"\0"
_HEAD = 5


class Origin(NamedTuple):
    """What the envelope names."""

    op: str
    #: The source, `region/name`.
    name: str
    schema: str
    table: str
    position: str


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)

    def text(self) -> str:
        length = self.long()
        self._at += length
        if length < 0 or self._at > len(self._data):
            raise IndexError("a text ends behind the record")
        return self._data[self._at - length : self._at].decode()

    def optional_long(self) -> None:
        if self.long():
            self.long()

    def optional_text(self) -> str:
        return self.text() if self.long() else ""


def read(value: bytes) -> Origin:
    """Return where a record comes from; raise CorruptInput for what is none."""
    try:
        reader = _Reader(value, _HEAD)
        op = reader.text()
        for _ in ("ts_ms", "ts_us", "ts_ns"):
            reader.optional_long()
        if reader.long():
            reader.text()
            reader.long()
            reader.optional_long()
        if reader.long():
            while count := reader.long():
                for _ in range(count):
                    reader.text()
        if reader.long():
            reader.long()
            reader.text()
        _version, _connector, name = reader.text(), reader.text(), reader.text()
        reader.long()
        reader.optional_long()
        reader.optional_long()
        if not reader.long():
            reader.text()
        reader.text()
        return Origin(op, name, reader.optional_text(), reader.optional_text(), reader.text())
    except (IndexError, ValueError) as error:
        raise CorruptInput("a record in Avro is not of a Headrace envelope") from error
