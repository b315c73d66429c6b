"""Who may attach to what: which links the bridge takes, and with which reason it refuses the others.

A source's address is `cdc/REGION/NAME`. A certificate is for the source that its common name is, unless the bridge's file has
another. Without certificates everybody may send for every source: such a bridge belongs into a trusted network. Who may receive
what of deliveries, where the bridge listens, is in the file alone. Called by the receiver when a client attaches.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from bridge.deliveries.outbox import Outbox

PREFIX = "cdc/"
NOT_FOUND, NOT_PERMITTED = "amqp:not-found", "amqp:unauthorized-access"
#: AMQP's sender settle mode of a link whose deliveries are not acknowledged.
_SETTLED = 1


class Identities:
    """Who may send for what."""

    def __init__(self, rules: Mapping[str, Sequence[str]], *, demanded: bool) -> None:
        self._rules = rules
        #: Whether a client has to have an identity at all.
        self.demanded = demanded

    def use(self, rules: Mapping[str, Sequence[str]]) -> None:
        """Decide by other rules from now on; the caller checks the links that are attached."""
        self._rules = rules

    def may_send(self, identity: str | None, source: str) -> bool:
        """Return whether a client with this `identity`, the common name of a verified certificate, may send for a source."""
        if not self.demanded:
            return True
        if not identity:
            return False
        region = source.partition("/")[0]
        return not {source, f"{region}/*"}.isdisjoint(self._rules.get(identity, (identity,)))


def refusal(
    link: Any,
    sources: Container[str],
    refused: Mapping[str, tuple[str, str]],
    identity: str | None,
    identities: Identities,
) -> tuple[str, str] | None:
    """Return an AMQP condition and its description when a link is not for us, None when it is.

    Args:
        link: what the other side attached.
        sources: the bridge's own.
        refused: those of them that it does not serve any more, with the reason.
        identity: the common name of the other side's certificate, None without one.
        identities: who may send for what.
    """
    if link.is_sender:
        return "amqp:not-allowed", "the bridge only receives: attach a sender to cdc/REGION/NAME"
    address = link.remote_target.address or ""
    if not address.startswith(PREFIX):
        return NOT_FOUND, f"there is no {address[:100]!r} here: a source's address is cdc/REGION/NAME"
    source = address.removeprefix(PREFIX)
    # Before anything that would show a stranger which sources there are.
    if not identities.may_send(identity, source):
        return NOT_PERMITTED, not_for(identity, source)
    return _of_ours(link, source, sources, refused)


def not_for(identity: str | None, source: str) -> str:
    """Return the error for whose certificate is not for a source."""
    return (
        f"the certificate of {identity!r} is not for source {source[:100]!r}. Use the source's own, or name this one "
        "under [interconnect] identities in the bridge's file"
    )


def not_here(source: str) -> str:
    """Return the error for the edge of a source that the bridge's file does not have."""
    return (
        f"source {source[:100]!r} is in no stream of the bridge's file. "
        "Add it under [streams.NAME.sources], run 'headrace bridge init', and send the bridge SIGHUP or start it again"
    )


def _of_ours(
    link: Any, source: str, sources: Container[str], refused: Mapping[str, tuple[str, str]]
) -> tuple[str, str] | None:
    if source in refused:
        return refused[source]
    if source not in sources:
        return NOT_FOUND, not_here(source)
    if link.remote_snd_settle_mode == _SETTLED:
        return "amqp:not-allowed", "deliveries must be sent unsettled: they are acknowledged one by one"
    return None


def may_receive(patterns: Sequence[str], address: str) -> bool:
    """Return whether one of some patterns is an address, or with `/*` at its end the beginning of it."""
    return any(
        address.startswith(pattern[:-1]) if pattern.endswith("/*") else address == pattern for pattern in patterns
    )


def outbox_of(outboxes: Iterable[Outbox], address: str) -> Outbox | None:
    """Return the outbox of the delivery that an address belongs to."""
    return next((outbox for outbox in outboxes if outbox.template.matches(address)), None)


def receiver_refusal(
    outboxes: Iterable[Outbox], address: str, identity: str | None, *, demanded: bool
) -> tuple[str, str] | None:
    """Return an AMQP condition and its description when a client may not receive from an address; None when it may.

    Args:
        outboxes: of all deliveries.
        address: where it attaches.
        identity: the common name of its certificate.
        demanded: whether certificates are asked for at all.
    """
    outbox = outbox_of(outboxes, address)
    # Before anything that would show a stranger which addresses there are.
    if demanded and not (outbox and may_receive(outbox.settings.receivers.get(identity or "", ()), address)):
        return "amqp:unauthorized-access", (
            f"the certificate of {identity!r} may not receive from {address[:100]!r}: name both under "
            "[deliveries.NAME] receivers in the bridge's file"
        )
    if outbox is None:
        return "amqp:not-found", f"{address[:100]!r} is an address of no delivery in the bridge's file"
    return None
