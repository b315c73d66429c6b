"""The receiver: a thread that speaks AMQP 1.0 for all sources, and what their threads may ask of it.

It listens for edges, or connects out to a router or broker, by several addresses in turn, and does so again, with growing
pauses, when that is lost. Sources talk to it by tickets, from their own threads; it is woken once for all that waits. Made,
started and stopped by the bridge.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Collection
from functools import partial

from bridge.amqp.authorization import shown
from bridge.amqp.connections import Peer
from bridge.amqp.delivery import Granted, Outcome
from bridge.amqp.transport import Loop
from headrace.backoff import Backoff
from headrace.configuration.bridge import Interconnect
from headrace.errors import ConfigurationError

_log = logging.getLogger(__name__)

#: The pause before the next of several addresses is tried, in seconds.
_NEXT_SECONDS = 0.1


class Receiver:
    """Takes deliveries to the sources' inboxes and outcomes back; implements `Deliverer`."""

    def __init__(self, interconnect: Interconnect, sources: Collection[str], name: str) -> None:
        self._interconnect = interconnect
        self._name = name
        self._peer = Peer(interconnect, sources, name)
        self._loop: Loop | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        #: What went wrong that nobody expected; the bridge ends with it.
        self.failure: BaseException | None = None
        #: The port that edges connect to; 0 when the bridge connects out.
        self.port = 0
        #: Whether edges can connect, or the interconnect that is connected out to answers.
        self.connected = False

    def start(self) -> None:
        """Start to listen, or to connect out; raise ConfigurationError when the address cannot be listened on."""
        if self._interconnect.listen is not None:
            host, _, port = self._interconnect.listen.rpartition(":")
            host = host or "0.0.0.0"
            self._loop = Loop(self._peer, self._name)
            try:
                self.port = self._loop.listen(host, int(port))
            except OSError as error:
                raise ConfigurationError(
                    f"cannot listen on {self._interconnect.listen}: {error.strerror or error}",
                    hint="Choose another address in [interconnect] listen, or stop who has it.",
                ) from error
            self.connected = True
            _log.info("listening for edges on %s:%s", host, self.port)
            if self._interconnect.certificate is None and not host.startswith("127."):
                _log.warning("the interconnect has no TLS and takes whoever reaches the port: see docs/security.md")
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Send the outcomes given until now, close all links, and end within `seconds`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._call(self._peer.part)
            self._thread.join(seconds)

    def settle(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Settle deliveries by ticket; a ticket whose link is gone is passed over."""
        if outcomes:
            self._call(partial(self._peer.links.credit.settle, outcomes))

    def grant(self, session: Granted) -> None:
        """Let the source's edge send to a session."""
        self._call(partial(self._peer.links.credit.grant, session))

    def revoke(self, session: Granted) -> None:
        """Give the session's edge no credit beyond what it has."""
        self._call(partial(self._peer.links.credit.revoke, session))

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the source's link, and any that comes later, with an error that the edge can show."""
        self._call(partial(self._peer.links.refuse, source, condition, description))

    def admit(self, source: str) -> None:
        """Take the source's links again that `refuse` closed."""
        self._call(partial(self._peer.links.admit, source))

    def _call(self, command: Callable[[], None]) -> None:
        """Have a command done in the receiver's thread; between two connections it waits for the next."""
        self._peer.commands.append(command)
        loop = self._loop
        if loop is not None:
            loop.wake()

    def _run(self) -> None:
        try:
            if self._loop is not None:
                self._loop.run()
            else:
                self._connect_out()
        except BaseException as error:  # noqa: BLE001 - the bridge ends with it.
            _log.exception("unexpected error")
            self.failure = error

    def _connect_out(self) -> None:
        """Go from address to address, with a pause that grows after each round through all of them."""
        backoff, failures = Backoff(first=0.2, longest=10.0), 0
        urls = itertools.cycle(self._interconnect.urls)

        connected_once = False

        def connected() -> None:
            nonlocal failures, connected_once
            connected_once, failures = True, 0
            self.connected = True
            backoff.reset()

        self._peer.on_connected = connected
        while not self._stopping.is_set():
            url = next(urls)
            _log.info("connecting to interconnect %s", shown(url))
            try:
                # A fresh loop each time: a receiver that lost its connection in the middle of a message cannot go on.
                self._loop = Loop(self._peer, self._name)
                self._loop.connect(self._interconnect, url)
                self._loop.run()
            except OSError as error:
                _log.warning("interconnect %s: %s", shown(url), error.strerror or error)
            except ConfigurationError as error:
                if not connected_once:
                    raise
                # Files are replaced one after the other: soon they fit each other again.
                _log.warning("%s", error.message)
            self.connected = False
            self._peer.drop_all()
            failures += 1
            last = failures % len(self._interconnect.urls) == 0
            self._stopping.wait(backoff.pause() if last else _NEXT_SECONDS)
