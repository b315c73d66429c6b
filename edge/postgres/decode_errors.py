"""What the decoder cannot pass on, and what an operator does about it (edge/postgres/pgoutput.py raises it).

Nothing is skipped: the log still holds it. No values of rows are in the words.
"""

from headrace.errors import CorruptInput


def corrupt(message: bytes, *, is_known: bool, place: str) -> CorruptInput:
    """Return the error of a message that is none of its type, or whose type is unknown."""
    wrong = "cannot be decoded" if is_known else "is of an unknown type"
    return CorruptInput(
        f"a message of type {message[:1]!r}, {len(message)} bytes long, {wrong}, {place}",
        hint="Nothing was skipped or confirmed: the log still holds it. Start the edge again; if it stops there again, "
        "look whether the server and its publication are of a kind that this release reads, and report it.",
    )
