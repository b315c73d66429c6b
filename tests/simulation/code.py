"""The classes under simulation, under one name each wherever they are; filled by `find` once they are loaded."""

import importlib
import importlib.util
from typing import Any

CreditManager: Any
Accept: Any
Reject: Any
Release: Any
judge: Any
Bridge: Any
#: Whether the bridge has lanes; before, it had a producer for each source.
LANES = False
#: What the receiver's methods are called at the credit manager.
CREDIT: dict[str, str] = {}

#: Where each is: now, and in the release before.
_WHERE = {
    "CreditManager": ("bridge.amqp.credit:CreditManager", "bridge.feeds:Feeds"),
    "Accept": ("bridge.model.delivery:Accept", "bridge.delivery:Accept"),
    "Reject": ("bridge.model.delivery:Reject", "bridge.delivery:Reject"),
    "Release": ("bridge.model.delivery:Release", "bridge.delivery:Release"),
    "judge": ("bridge.model.chain:judge", "bridge.chain:judge"),
    "Bridge": ("bridge.bridge:Bridge",),
}

_CREDIT = (
    ("give_credit", "allow"),
    ("give_credit", "grant"),
    ("withhold_credit", "forbid"),
    ("withhold_credit", "revoke"),
)


def find() -> None:
    """Look them up."""
    for name, places in _WHERE.items():
        globals()[name] = _first(places)
    globals()["LANES"] = _has("bridge.lanes.lane")
    names = vars(globals()["CreditManager"])
    CREDIT.update(
        {asked: name for asked, name in _CREDIT if name in names},
    )


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _first(places: tuple[str, ...]) -> Any:
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise LookupError(f"nothing of {places} is there")
