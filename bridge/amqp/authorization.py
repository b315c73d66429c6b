"""Addresses: which links the bridge takes, and with which reason it refuses the others.

A source's address is `cdc/REGION/NAME`. Called by the receiver when somebody attaches.
"""

from collections.abc import Container, Mapping
from typing import Any

from bridge.amqp.identities import Identities

PREFIX = "cdc/"
NOT_FOUND = "amqp:not-found"
#: AMQP's sender settle mode of a link whose deliveries nobody acknowledges.
_SETTLED = 1


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
        return "amqp:unauthorized-access", (
            f"the certificate of {identity!r} is not for source {source[:100]!r}. Use the source's own, or name this one "
            "under [interconnect] identities in the bridge's file"
        )
    return _of_ours(link, source, sources, refused)


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
