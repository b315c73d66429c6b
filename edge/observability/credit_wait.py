"""How long a link has been attached without credit, as log, status, doctor and metrics show it.

A link without credit looks healthy and carries nothing: a router attaches every sender and grants credit only once a receiver is
there. Written by the sender's thread; others read it.
"""

import time

#: A wait of less than this is ordinary, in seconds.
_ORDINARY_SECONDS = 5.0
#: The first pause between two warnings and the longest, in seconds; each is twice the one before.
_FIRST_SECONDS, _LONGEST_SECONDS = 30.0, 600.0


class CreditWait:
    """The wait of one link after another."""

    def __init__(self) -> None:
        # By the monotonic clock and by that of the wall; None while there is credit, or no link.
        self._since: tuple[float, float] | None = None
        self._warn_at, self._pause = 0.0, _FIRST_SECONDS

    @property
    def seconds(self) -> float:
        """For how long there has been a link and no credit."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since[0]

    @property
    def is_long(self) -> bool:
        """Whether that is longer than ordinary."""
        return self.seconds > _ORDINARY_SECONDS

    def attached(self) -> None:
        """Begin to wait: the link is there."""
        now = time.monotonic()
        self._since = now, time.time()
        self._warn_at, self._pause = now + _ORDINARY_SECONDS, _FIRST_SECONDS

    def used_up(self) -> None:
        """Begin to wait, unless it does: all credit is used."""
        if self._since is None:
            self.attached()

    def given(self) -> None:
        """End the wait: there is credit, or no link any more."""
        self._since = None

    def is_due(self) -> bool:
        """Return whether it is time for a warning, seldomer each time."""
        now = time.monotonic()
        if self._since is None or now < self._warn_at:
            return False
        self._warn_at, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_SECONDS)
        return True

    def __str__(self) -> str:
        """Return it in words, empty while nothing waits."""
        since = self._since
        if since is None:
            return ""
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since[1]))
        return (
            f"attached, no credit since {clock}: no bridge receives from this address, a router between does not forward it, or "
            "the bridge waits for Kafka or for an operator"
        )
