"""Why the interconnect closed a link, a connection or the way to it, in words, and who has to act.

Sans-I/O, but that an untrusted certificate is asked for once more to say what is wrong with it. Takes AMQP conditions, which have
a name and a description. Called by edge/delivery/link.py.
"""

from typing import Any

from headrace.certificates import words
from headrace.configuration.edge import Interconnect
from headrace.errors import NeedsOperator, NotConnected, ReplicationError

#: Artemis's own number for a permission that is missing; of an address that it would have to make first, it says so alone.
_NOT_PERMITTED = "AMQ229032"
#: A router's or broker's condition for a message above its limit.
_TOO_LARGE = "amqp:link:message-size-exceeded"
#: A router's condition, at Open, both for a limit that is reached and for a user that no policy group names.
LIMIT = "amqp:resource-limit-exceeded"


def rejected(source: str, condition: Any) -> ReplicationError:
    """Return what to raise when a batch was rejected."""
    if condition is not None and condition.name == _TOO_LARGE:
        return _too_large(f"a batch of {source} was rejected on the way: {said(condition)}")
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
    if condition.name == _TOO_LARGE:
        return _too_large(f"interconnect {url} closed the link to {address}: {said(condition)}")
    return NotConnected(
        f"interconnect {url} closed the link to {address}: {said(condition)}",
        hint="Is the source in the bridge's configuration?" if condition.name == "amqp:not-found" else "",
    )


def connection_closed(url: str, condition: Any) -> ReplicationError:
    """Return what to raise when the peer closed the connection."""
    limited = condition is not None and condition.name == LIMIT
    return NotConnected(
        f"interconnect {url} closed the connection: {said(condition)}",
        hint="If that lasts: a router's policy has no group that names this edge's user (the common name of [interconnect] "
        "certificate) and its address, or a limit such as maxConnections is reached. The router's log says which"
        if limited
        else "",
    )


def closed_silently(url: str, *, opened: bool) -> ReplicationError:
    """Return what to raise when the connection ended without a reason; `opened`: after the peer had answered."""
    if opened:
        return NotConnected(f"interconnect {url} closed the connection")
    what = "does the port speak TLS" if url.startswith("amqps:") else "does the port speak AMQP without TLS"
    return NotConnected(
        f"interconnect {url} closed the connection before it was opened",
        hint=f"If that lasts: {what}? A router that has reached its policy's maxConnections closes connections in this way too",
    )


def way_lost(interconnect: Interconnect, url: str, condition: Any, *, opened: bool) -> ReplicationError:
    """Return what to raise when there was no connection to be had, or it broke; `opened`: after the peer had answered."""
    secure = url.startswith("amqps:")
    if condition is not None and condition.name == "amqp:unauthorized-access":
        return NeedsOperator(
            f"interconnect {url} does not let this edge in: {said(condition)}",
            hint="Check [interconnect] certificate, or user and password"
            + ("." if secure else ", and whether it wants an amqps:// address."),
        )
    reason = said(condition)
    if opened:
        return NotConnected(f"interconnect {url}: the connection was lost: {reason}")
    if secure and "unexpected eof" in reason:
        return closed_silently(url, opened=False)
    if secure:
        more = words.why(url, interconnect) if "certificate verify failed" in reason else words.meaning(reason)
        reason = f"{more} ({reason})" if more else reason
    return NotConnected(f"interconnect {url} cannot be reached: {reason}")


def _too_large(message: str) -> NeedsOperator:
    return NeedsOperator(
        message,
        hint="A router or broker has a smaller limit for messages than this batch: raise its policy's maxMessageSize above "
        "[records] largest_megabytes. Its own log names the connection; the bridge never saw the batch. Nothing is lost.",
    )


def said(condition: Any) -> str:
    """Return an AMQP condition in one short line."""
    if condition is None:
        return "it gave no reason"
    return " ".join(f"{condition.name} {condition.description or ''}".split())[:300]
