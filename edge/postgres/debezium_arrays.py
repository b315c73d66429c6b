"""Arrays as Debezium writes them: a JSON array of elements, each in the form of its type; arrays of arrays are nested.

PostgreSQL prints `{1,NULL,"a b"}`, with the bounds ahead of it where they are not from 1 on, and a backslash ahead of quotes and
backslashes. Raises ValueError for what is none.
"""

import re
from collections.abc import Callable

_TOKEN = re.compile(
    rb'\s*(?:([{},;])|"((?:[^"\\]|\\.)*)"|((?:[^{},;"\\\s]|\\.|(?<=[^{},;"])\s+(?=[^{},;"\s]))+))', re.DOTALL
)
_BOUNDS = re.compile(rb"(?:\[-?\d+:-?\d+\])+=")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def array(element: Callable[[bytes], bytes], delimiter: bytes = b",") -> Callable[[bytes], bytes]:
    """Return the function for arrays whose elements are written by another one."""

    def convert(text: bytes) -> bytes:
        bounds = _BOUNDS.match(text)
        at, made, depth, end = bounds.end() if bounds else 0, [], 0, len(text)
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError("an array is none")
            at = match.end()
            mark, quoted, plain = match.groups()
            if mark == b"{":
                depth += 1
                made.append(b"[")
            elif mark == b"}":
                depth -= 1
                made.append(b"]")
            elif mark is not None:
                made.append(b"," if mark == delimiter else mark)
            elif quoted is not None:
                made.append(element(_ESCAPED.sub(rb"\1", quoted)))
            else:
                made.append(b"null" if plain.upper() == b"NULL" else element(_ESCAPED.sub(rb"\1", plain)))
            if depth < 0 or (depth == 0 and at < end):
                raise ValueError("an array does not end where its braces do")
        if depth or not made:
            raise ValueError("an array has no end")
        return b"".join(made)

    return convert
