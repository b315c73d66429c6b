"""Identities: for which sources a client may send, by the common name of its certificate.

A certificate is for the source that its common name is, unless the bridge's file has another. Without certificates everybody
may send for every source: such a bridge belongs into a trusted network. Called by the receiver when somebody attaches.
"""

from collections.abc import Mapping, Sequence


class Identities:
    """Who may send for what."""

    def __init__(self, rules: Mapping[str, Sequence[str]], *, demanded: bool) -> None:
        self._rules = rules
        #: Whether a client has to have an identity at all.
        self.demanded = demanded

    def use(self, rules: Mapping[str, Sequence[str]]) -> None:
        """Decide by other rules from now on; links that are attached stay."""
        self._rules = rules

    def may_send(self, identity: str | None, source: str) -> bool:
        """Return whether who has the `identity`, the common name of a certificate that was checked, may send for a source."""
        if not self.demanded:
            return True
        if not identity:
            return False
        region = source.partition("/")[0]
        return not {source, f"{region}/*"}.isdisjoint(self._rules.get(identity, (identity,)))
