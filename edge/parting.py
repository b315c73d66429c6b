"""Why the interconnect closed a link, a connection or the way to it, in words, and who has to act.

Sans-I/O, but that an untrusted certificate is asked for once more to say what is wrong with it. Takes AMQP conditions, which have
a name and a description. Called by edge/link.py.
"""

from typing import Any

from headrace.certificates import words
from headrace.configuration.edge import Interconnect
from headrace.errors import NeedsOperator, NotConnected, ReplicationError

#: Artemis's own number for a permission that is missing; of an address that it would have to make first, it says so alone.
_NOT_PERMITTED = "AMQ229032"


def rejected(source: str, condition: Any) -> ReplicationError:
    """Return what to raise when a batch was rejected."""
    return NeedsOperator(
        f"the far side rejected a batch of {source}: {said(condition)}",
        hint="See the bridge's log, and 'headrace bridge positions'. Nothing is lost: the batch stays in the slot.",
    )


def link_closed(url: str, address: str, condition: Any) -> ReplicationError:
    """Return what to raise when the link was refused, or lost."""
    if condition is None:
        return NotConnected(f"interconnect {url} closed the link to {address}")
    if condition.name == "amqp:unauthorized-access" or _NOT_PERMITTED in (condition.description or ""):
        return NeedsOperator(
            f"interconnect {url} does not let this edge send to {address}: {said(condition)}",
            hint="Check [interconnect] certificate or user, and what the interconnect lets it send to: [interconnect] "
            "identities of a bridge that listens, the policy of a router or broker.",
        )
    return NotConnected(
        f"interconnect {url} closed the link to {address}: {said(condition)}",
        hint="Is the source in the bridge's configuration?" if condition.name == "amqp:not-found" else "",
    )


def way_lost(interconnect: Interconnect, url: str, condition: Any) -> ReplicationError:
    """Return what to raise when there was no connection to be had, or it broke."""
    secure = url.startswith("amqps:")
    if condition is not None and condition.name == "amqp:unauthorized-access":
        return NeedsOperator(
            f"interconnect {url} does not let this edge in: {said(condition)}",
            hint="Check [interconnect] certificate, or user and password"
            + ("." if secure else ", and whether it wants an amqps:// address."),
        )
    reason = said(condition)
    if secure:
        more = words.why(url, interconnect) if "certificate verify failed" in reason else words.meaning(reason)
        reason = f"{more} ({reason})" if more else reason
    return NotConnected(f"interconnect {url} cannot be reached: {reason}")


def said(condition: Any) -> str:
    """Return an AMQP condition in one short line."""
    if condition is None:
        return "it gave no reason"
    return " ".join(f"{condition.name} {condition.description or ''}".split())[:300]
