"""Versions of what one release writes and another one reads: the edge's files, batches, committed positions (design decision 18).

Each format has a number of its own, which grows when a reader of the former number could misread or refuse what is written. A
release reads the number that it writes and those of the previous minor release; docs/upgrading.md has the order of upgrades.
A reader checks the number before it decodes the rest: what a newer release has added is no damage. Bytes of each release are
kept in tests/compatibility/.
"""

import re
from typing import Final, NamedTuple

import msgspec

from headrace import __version__
from headrace.errors import NeedsOperator

#: What decoding raises for bytes that are none of ours: damaged, no text, nested too deep, a number beyond any.
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
#: Where the decoder's message has a value, and how long a name of a field may be that nobody knows.
_WITH_VALUE, _LONGEST = re.compile(r"^(Invalid (?:enum )?value) .*(?= - at )", re.DOTALL), 300


def explain(error: Exception) -> str:
    """Return what one of UNREADABLE says of where something is none of ours, without its value."""
    if isinstance(error, msgspec.ValidationError):
        return _WITH_VALUE.sub(r"\1", str(error))[:_LONGEST]
    return "it is no JSON object"


class _Versioned(msgspec.Struct):
    """Any JSON object of ours; other fields are not looked at."""

    version: int = 1


class Format(NamedTuple):
    """One format: what is written, and what is read."""

    name: str
    #: The version that this release writes.
    version: int
    #: The oldest version that this release reads.
    oldest: int
    #: What to do about a newer version, and about an older one.
    newer_hint: str = (
        "A newer release wrote it: start that release again, or a later one. A release reads what the previous minor release "
        "wrote, not what later ones write. Nothing was changed."
    )
    older_hint: str = "Start the release that follows the one that wrote it; then upgrade one minor release at a time."

    def check(self, version: int, where: str) -> None:
        """Raise NeedsOperator unless this release reads a version; `where` names the file, or what else it was found in."""
        if self.oldest <= version <= self.version:
            return
        read = f"version {self.version}" if self.oldest == self.version else f"versions {self.oldest} to {self.version}"
        raise NeedsOperator(
            f"{where} has version {str(version)[:20]} of the {self.name} format, and this release, {__version__}, reads {read}",
            hint=f"{self.newer_hint if version > self.version else self.older_hint} See docs/upgrading.md.",
        )

    def check_json(self, data: bytes, where: str) -> None:
        """Do the same for a JSON object; raise one of UNREADABLE when it is none."""
        self.check(msgspec.json.decode(data, type=_Versioned).version, where)


#: Version 2 has headers of records, version 3 what records in Avro were written with, version 4 positions above 64 bits; a batch
#: without any of them is of version 1.
BATCH: Final = Format(
    "batch",
    4,
    1,
    newer_hint="The edge is newer than the bridge: upgrade the bridge, then start the edge again; nothing is lost meanwhile.",
    older_hint="The edge is too old for the bridge: upgrade the edge, one minor release at a time.",
)
CHECKPOINT: Final = Format("checkpoint", 1, 1)
SPOOL: Final = Format("spool", 1, 1)
#: Version 2 has `TablePlan.log_table` and `TablePlan.marks_open`.
SNAPSHOT_PLAN: Final = Format("snapshot plan", 2, 1)
SNAPSHOT_REQUEST: Final = Format("snapshot request", 1, 1)
TABLE_HISTORY: Final = Format("table history", 1, 1)
PASSED_TRANSACTIONS: Final = Format("passed transactions", 1, 1)
SNAPSHOT_PLACE: Final = Format("snapshot place", 1, 1)
#: Version 1, of releases up to 0.1, has no number in its text; version 3 has withheld tables (bridge/model/chain.py).
COMMITTED_POSITION: Final = Format(
    "committed position",
    3,
    1,
    newer_hint="A newer bridge wrote it: run that release of the bridge again, or a later one. Do not delete the group: "
    "its positions would be lost.",
)
#: What is asked of an edge, and what it answers (headrace/requests.py).
REQUEST: Final = Format(
    "request",
    1,
    1,
    newer_hint="Who asks is newer than who is asked: upgrade the bridge, then the edge.",
    older_hint="Upgrade who asks, one minor release at a time.",
)
ANSWER: Final = Format(
    "answer",
    1,
    1,
    newer_hint="The edge is newer than headquarters: upgrade the bridge and the lake.",
    older_hint="Upgrade the edge, one minor release at a time.",
)
#: What a verification in a region is asked and answers (headrace/verify/contract.py), canonical texts included.
VERIFICATION: Final = Format(
    "verification",
    1,
    1,
    newer_hint='Headquarters is newer than the edge: upgrade the edge, or verify with via = "direct".',
    older_hint="The edge is newer than headquarters: upgrade the lake.",
)
#: What `headrace bridge export` prints; version 2 has withheld tables, and without any it is of version 1.
EXPORTED_POSITIONS: Final = Format(
    "exported positions",
    2,
    1,
    newer_hint="Import them with that release of the bridge.",
)
