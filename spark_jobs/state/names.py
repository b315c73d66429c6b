"""Which name a table has in SQL: letters of ASCII, digits and `_`, unique in the lake regardless of case, and permanent.

`accounts` for `public.accounts`, `audit_log` for `audit.log`. A name that another table has, and a name of other characters, gets
a suffix made of the source's own name. Names that were assigned never change; what is assigned next does not depend on the
order in which tables are given. Pure; name_registry.py records what was assigned.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping

#: A stream and a table of it, by its source's `schema.table`.
Place = tuple[str, str]

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")
#: Characters of a suffix, at least, and of what is before it, at most.
_SUFFIX, _MOST = 8, 80


def assigned(known: Mapping[Place, str], places: Iterable[Place]) -> dict[Place, str]:
    """Return the name of each place: the known one where there is one, else a new one that no other place has."""
    wanted = sorted(set(places))
    found = {place: known[place] for place in wanted if place in known}
    taken = {name.casefold() for name in known.values()}
    groups: dict[str, list[Place]] = defaultdict(list)
    for place in wanted:
        if place not in known:
            groups[_plain(place[1]).casefold()].append(place)
    # Plain names first, so that no suffixed one takes theirs.
    for base, group in sorted(groups.items(), key=lambda one: (any(_odd(table) for _, table in one[1]), one[0])):
        for place, name in _of_group(base, group, taken):
            found[place] = name
            taken.add(name.casefold())
    return {place: found[place] for place in wanted}


def stream_name(stream: str, streams: Iterable[str]) -> str:
    """Return the name of a stream's table of bronze: SQL takes no `-`."""
    name = stream.replace("-", "_")
    return f"{name}_{_digest(stream)[:_SUFFIX]}" if name != stream and name in streams else name


def _of_group(base: str, group: list[Place], taken: set[str]) -> Iterable[tuple[Place, str]]:
    """Yield the names of places that would have one name. `taken` grows while this runs."""
    streams = {stream for stream, _ in group}
    shared = base in taken or len({stream for stream, table in group if not _odd(table)}) > 1
    for stream in sorted(streams):
        # The table that is called so in schema public keeps the short name.
        own = sorted(
            (place for place in group if place[0] == stream), key=lambda p: (not p[1].startswith("public."), p)
        )
        for place in own:
            short = _plain(place[1])
            if _odd(place[1]):
                yield place, _suffixed(short, place, taken)
                continue
            if shared:
                short = f"{stream.replace('-', '_')}_{short}"
            yield place, short if short.casefold() not in taken else _suffixed(_plain(place[1]), place, taken)


def _plain(table: str) -> str:
    """Return the short name of a table, in characters that SQL takes."""
    schema, _, own = table.partition(".")
    name = own if schema == "public" else f"{schema}_{own}"
    if not _odd(table):
        return name
    # Letters lose their accents; what is left of other scripts is the suffix alone.
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return _OTHER.sub("_", ascii_only).strip("_")[:_MOST] or "table"


def _odd(table: str) -> bool:
    schema, _, own = table.partition(".")
    return not (_PLAIN.fullmatch(schema) and _PLAIN.fullmatch(own))


def _suffixed(name: str, place: Place, taken: set[str]) -> str:
    # The table's name alone, so it has one name in every lake; where two streams have it, the stream's name too.
    digests = (_digest(place[1]), _digest("\0".join(place)))
    candidates = (f"{name}_{digest[:length]}" for length in range(_SUFFIX, 65, 8) for digest in digests)
    return next(candidate for candidate in candidates if candidate.casefold() not in taken)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
