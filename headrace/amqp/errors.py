"""Why an interconnect ended a link, a connection or an attempt to connect, in words, and who has to act.

Sans-I/O, except that a server whose certificate is not trusted is asked once more what is wrong with it. Takes AMQP conditions,
which have a name and a description. Called by headrace/amqp/connection.py, and by a bridge that listens.
"""

from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headrace.certificates import files
from headrace.configuration.sections import Certificates
from headrace.errors import NeedsOperator, NotConnected, ReplicationError

#: Artemis's own number for a permission that is missing; of an address that it would have to make first, it gives that alone.
_NOT_PERMITTED = "AMQ229032"
#: A router's or broker's condition for a message above its limit.
TOO_LARGE = "amqp:link:message-size-exceeded"
#: A router's condition, at Open, both for a limit that is reached and for a user that no policy group names.
LIMIT = "amqp:resource-limit-exceeded"
_SENDS = "send to"


class Role(NamedTuple):
    """Who connects and for what, in the words of the messages."""

    #: "edge", "bridge", "command".
    part: str
    #: `_SENDS` to an address, or "receive from" one.
    does: str
    #: What to check when the address is unknown to the other side.
    if_not_found: str = ""
    #: What to do about a message that is too large for a router or broker.
    if_too_large: str = (
        "A router or broker has a smaller limit for messages: raise its policy's maxMessageSize. Its own log names the "
        "connection."
    )


class Reasons:
    """The reasons for the ends of the connections to one address, `url`."""

    def __init__(self, role: Role, url: str, certificates: Certificates) -> None:
        self._role = role
        self._url = hide_password(url)
        self._is_secure = url.startswith("amqps:")
        self._certificates = certificates

    def link_closed(self, address: str, condition: Any) -> ReplicationError:
        """Return what to raise when the link to an address was refused, or lost."""
        role, what = self._role, f"interconnect {self._url} closed the link to {address}"
        if condition is None:
            return NotConnected(what)
        if condition.name == "amqp:unauthorized-access" or _NOT_PERMITTED in (condition.description or ""):
            return NeedsOperator(
                f"interconnect {self._url} does not let this {role.part} {role.does} {address}: {described(condition)}",
                hint=f"Check [interconnect] certificate or user, and what the interconnect lets it {role.does}: [interconnect] "
                "identities of a bridge that listens, the policy of a router or broker.",
            )
        # A sender's next message is the same one again; of what is received, others may come.
        if condition.name == TOO_LARGE and role.does == _SENDS:
            return NeedsOperator(f"{what}: {described(condition)}", hint=role.if_too_large)
        return NotConnected(
            f"{what}: {described(condition)}", hint=role.if_not_found if condition.name == "amqp:not-found" else ""
        )

    def session_closed(self, condition: Any) -> ReplicationError:
        """Return what to raise when the other side closed the session."""
        return NotConnected(f"interconnect {self._url} closed the session: {described(condition)}")

    def connection_closed(self, condition: Any) -> ReplicationError:
        """Return what to raise when the other side closed the connection."""
        hint = (
            f"If that lasts: a router's policy has no group that names this {self._role.part}'s user (the common name of "
            "[interconnect] certificate) and its address, or a limit such as maxConnections is reached. The router's log "
            "names it"
        )
        is_limit = condition is not None and condition.name == LIMIT
        return NotConnected(
            f"interconnect {self._url} closed the connection: {described(condition)}", hint=hint if is_limit else ""
        )

    def closed_silently(self, *, opened: bool) -> ReplicationError:
        """Return what to raise when the connection ended without a reason; `opened`: after the other side had answered."""
        if opened:
            return NotConnected(f"interconnect {self._url} closed the connection")
        what = "does the port speak TLS" if self._is_secure else "does the port speak AMQP without TLS"
        return NotConnected(
            f"interconnect {self._url} closed the connection before it was opened",
            hint=f"If that lasts: {what}? A router that has reached its policy's maxConnections closes connections in this way "
            "too",
        )

    def lost(self, condition: Any, *, opened: bool) -> ReplicationError:
        """Return what to raise when an attempt to connect failed, or the connection broke; `opened` as above."""
        if condition is not None and condition.name == "amqp:unauthorized-access":
            return NeedsOperator(
                f"interconnect {self._url} does not let this {self._role.part} in: {described(condition)}",
                hint="Check [interconnect] certificate, or user and password"
                + ("." if self._is_secure else ", and whether it needs an amqps:// address."),
            )
        reason = described(condition)
        if opened:
            return NotConnected(f"interconnect {self._url}: the connection was lost: {reason}")
        if self._is_secure and "unexpected eof" in reason:
            return self.closed_silently(opened=False)
        if self._is_secure:
            untrusted = "certificate verify failed" in reason
            more = files.why(self._url, self._certificates) if untrusted else files.meaning(reason)
            reason = f"{more} ({reason})" if more else reason
        return NotConnected(f"interconnect {self._url} cannot be reached: {reason}")

    def unreachable(self, error: OSError) -> ReplicationError:
        """Return what to raise when its name cannot be resolved, or there is no path to it."""
        return NotConnected(f"interconnect {self._url} cannot be reached: {error.strerror or error}")

    def unanswered(self, seconds: float) -> ReplicationError:
        """Return what to raise when an attempt was given up after so many seconds."""
        return NotConnected(f"interconnect {self._url} did not answer within {seconds:.0f} s")

    def unreadable(self) -> ReplicationError:
        """Return what to raise when the other side sent what cannot be processed."""
        return NotConnected(f"interconnect {self._url} sent what cannot be processed", hint="This side's log names it")

    def renewed(self) -> ReplicationError:
        """Return what to raise when a connection ends because the certificates were renewed."""
        return NotConnected(f"the certificates for {self._url} were renewed")


def described(condition: Any) -> str:
    """Return an AMQP condition in one short line."""
    if condition is None:
        return "it gave no reason"
    return " ".join(f"{condition.name} {condition.description or ''}".split())[:300]


def hide_password(url: str) -> str:
    """Return a URL without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
