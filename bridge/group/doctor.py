"""What `headrace bridge doctor` looks at in the group of bridges: whether it is this environment's alone (O11).

Two environments with one `[kafka] prefix` share a group: each is assigned partitions of the other, which nobody serves then.
"""

from collections.abc import Collection, Iterator
from typing import Any

from bridge.kafka.client import PATIENCE
from bridge.kafka.entries import NOBODY, Entries
from bridge.kafka.errors import translated
from headrace.findings import Finding

_SHOWN = 3
_OWN = "Give each environment a prefix of its own in [kafka] prefix"


def look_at_group(admin: Any, group: str, topics: Collection[str]) -> Iterator[Finding]:
    """Yield what is wrong with the members of a group, which is to have those of some topics alone."""
    with translated(f"read who is in group {group}"):
        found = admin.describe_consumer_groups([group], request_timeout=PATIENCE)[group].result()
    others = {
        each.topic
        for member in found.members
        if member.assignment is not None
        for each in member.assignment.topic_partitions
    } - set(topics)
    if others:
        yield Finding(
            "group",
            "wrong",
            f"{group} has bridges of other topics: {_listed(others)}. Each bridge is assigned sources that it does not know",
            f"{_OWN}, or the same streams in the files of all bridges.",
        )
    else:
        yield Finding("group", "ok", f"{group}: {len(found.members)} bridges, of this file's topics alone")


def look_at_holders(group: str, entries: Entries, sources: Collection[str]) -> Iterator[Finding]:
    """Yield which sources have positions in a group that the file does not name."""
    strangers = {text.source for _, text in entries.values()} - {*sources, NOBODY, ""}
    if strangers:
        yield Finding(
            "group",
            "warning",
            f"{group} holds positions of sources that the file does not name: {_listed(strangers)}",
            f"If they were retired: 'headrace bridge forget SOURCE'. If they are another environment's: {_OWN.lower()}.",
        )


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown + ", …" * (len(names) > _SHOWN)
