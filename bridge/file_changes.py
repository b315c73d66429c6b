"""What changed between two versions of a bridge's file, and what of it a running bridge can take over. No socket, no thread.

A running bridge takes over sources that were added or removed, and who may send for which source. Everything else needs a
restart, and a file that changes anything else is refused as a whole: half a file would be neither the old one nor the new one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import Section
from headrace.errors import NeedsOperator

Place = tuple[str, ...]


class Difference(NamedTuple):
    """What a running bridge can take over."""

    added: list[str]
    removed: list[str]
    #: Whether anything differs at all.
    anything: bool


def compare(old: BridgeFile, new: BridgeFile) -> Difference:
    """Return what is to be taken over; raise NeedsOperator that names each setting which cannot be."""
    before, after = (_sources(file) for file in (old, new))
    moved = {source for source in before.keys() & after.keys() if before[source] != after[source]}
    changed = [".".join(place) for place in _differences(old, new, ()) if not _is_taken_over(place)]
    if moved:
        names = ", ".join(sorted(moved))
        raise NeedsOperator(
            f"{new.path} is not taken over: it gives other partitions to {names}",
            hint="Stop the bridges that share these sources, run 'headrace bridge move SOURCE' for each, and start them. Or put "
            "the former partitions back.",
        )
    if changed:
        raise NeedsOperator(
            f"{new.path} is not taken over, nothing of it: a running bridge cannot change {', '.join(changed)}",
            hint="Put these back and send SIGHUP again, or start the bridge again, which takes the whole file.",
        )
    return Difference(
        sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys()), any(_differences(old, new, ()))
    )


def _sources(file: BridgeFile) -> dict[str, tuple[str, list[int]]]:
    return {
        source: (name, partitions)
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
    }


def _is_taken_over(place: Place) -> bool:
    return place[:2] == ("interconnect", "identities") or (
        len(place) == 4 and (place[0], place[2]) == ("streams", "sources")
    )


def _differences(old: Any, new: Any, place: Place) -> Iterator[Place]:
    """Yield the names of the settings that differ; never a value, which may be a secret's reference."""
    if isinstance(old, Section) and type(old) is type(new):
        for name in old.__struct_fields__:
            yield from _differences(getattr(old, name), getattr(new, name), (*place, name))
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from _differences(old[key], new[key], (*place, key))
            else:
                yield (*place, key)
    elif old != new:
        yield place
