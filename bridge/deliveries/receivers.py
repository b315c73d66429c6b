"""Who may receive what, where the bridge listens: by the common name of a client's certificate. Pure.

Nobody, where the file names none.

Called by the links of deliveries when somebody attaches.
"""

from collections.abc import Iterable, Sequence

from bridge.deliveries.outbox import Outbox


def may_receive(patterns: Sequence[str], address: str) -> bool:
    """Return whether one of some patterns is an address, or with `/*` at its end the beginning of it."""
    return any(
        address.startswith(pattern[:-1]) if pattern.endswith("/*") else address == pattern for pattern in patterns
    )


def outbox_of(outboxes: Iterable[Outbox], address: str) -> Outbox | None:
    """Return the outbox of the delivery that an address belongs to."""
    return next((outbox for outbox in outboxes if outbox.template.matches(address)), None)


def refusal(
    outboxes: Iterable[Outbox], address: str, identity: str | None, *, demanded: bool
) -> tuple[str, str] | None:
    """Return an AMQP condition and its description when somebody may not receive from an address; None when he may.

    Args:
        outboxes: of all deliveries.
        address: where he attaches.
        identity: the common name of his certificate.
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
