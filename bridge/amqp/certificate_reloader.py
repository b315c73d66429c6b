"""The bridge's certificates: used, and used again when their files were renewed.

A bridge that connects out connects again; a bridge that listens shows the new ones to connections from then on. Called by
bridge/amqp/connections.py, in the receiver's thread.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from bridge.amqp.transport import server_trust
from headrace.certificates import files
from headrace.configuration.bridge import Interconnect
from headrace.errors import ConfigurationError

_log = logging.getLogger(__name__)

#: How often it is looked whether the certificates were renewed, in seconds.
CERTIFICATE_SECONDS = 30.0


class CertificateReloader:
    """Looks at the files of the certificates now and then, where there are any."""

    def __init__(self, interconnect: Interconnect, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._interconnect = interconnect
        self._later = later
        self._stamp = files.stamp(interconnect)
        self._trust: Any = None
        self._over = False

    @property
    def has_tls(self) -> bool:
        """Whether there are certificates."""
        return self._interconnect.certificate is not None or self._interconnect.authority is not None

    def apply(self, acceptor: Any) -> None:
        """Show the certificates to who comes; raise ConfigurationError when they are of no use."""
        if self.has_tls:
            self._trust = server_trust(self._interconnect)
            acceptor.set_ssl_domain(self._trust)
            self._look_later(partial(self._apply_again, acceptor))

    def watch(self, renewed: Callable[[], None]) -> None:
        """Call `renewed`, once, when the files are others than now."""
        self._stamp = files.stamp(self._interconnect)
        if self.has_tls:
            self._look_later(renewed)

    def end(self) -> None:
        """Look no more."""
        self._over = True

    def _look_later(self, renewed: Callable[[], None]) -> None:
        self._later(CERTIFICATE_SECONDS, partial(self._look, renewed))

    def _look(self, renewed: Callable[[], None]) -> None:
        if self._over:
            return
        if files.stamp(self._interconnect) != self._stamp:
            renewed()
        else:
            self._look_later(renewed)

    def _apply_again(self, acceptor: Any) -> None:
        stamp = files.stamp(self._interconnect)
        try:
            self._trust = server_trust(self._interconnect)
        except ConfigurationError as error:
            # Files are replaced one after the other: soon they fit each other again.
            _log.warning("the former certificates stay in use: %s", error.message)
        else:
            acceptor.set_ssl_domain(self._trust)
            self._stamp = stamp
            _log.info("the certificates were renewed: who connects from now on is shown the new ones")
        self._look_later(partial(self._apply_again, acceptor))
