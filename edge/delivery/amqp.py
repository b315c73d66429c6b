"""AMQP 1.0, by Proton: the loop of a connection, its link, its certificates. The one module of the edge that imports Proton.

A `Loop` runs Proton for a connection (edge/delivery/link.py), which decides everything. Nothing is sent pre-settled.
Everything here runs in the sender's thread, but for `Loop.wake`.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from proton import Delivery, Endpoint, Event, Handler, Message, ProtonException, SSLDomain, SSLException, symbol
from proton.handlers import IOHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, Container, EventInjector, SenderOption

from edge.records.batcher import SealedBatch
from headrace.amqp.polling import Polled
from headrace.batch import CONTENT_ENCODING, CONTENT_TYPE
from headrace.certificates import files
from headrace.configuration.edge import Interconnect

__all__ = ["Delivery", "Endpoint", "Event", "Handler", "Loop", "message", "trust"]

_log = logging.getLogger(__name__)

#: Writes in a row, of up to a frame each, before something else has its turn.
_WRITES = 256


class Loop:
    """One run of Proton's loop for a connection, which any thread can wake."""

    def __init__(self, connection: Handler, name: str) -> None:
        self._lock = threading.Lock()
        self._woken = False
        self._link: Endpoint | None = None
        self._injector: EventInjector | None = EventInjector()
        self._container = Container(connection, container_id=name)
        # Its own TLS contexts, which hold the system's authorities, are not used: 1.6 MB.
        self._container.ssl = None
        self._container.global_handler.base = _Filling()
        self._container.selectable(self._injector)

    def run(self) -> None:
        """Run until it is stopped; raise OSError when the address to connect to cannot be had."""
        self._container.run()

    def attach(
        self,
        url: str,
        address: str,
        name: str,
        *,
        heartbeat: float,
        trusted: SSLDomain | None,
        credentials: Mapping[str, object],
    ) -> Endpoint:
        """Connect, and attach a sender whose deliveries wait for their outcomes; return its link."""
        connection = self._container.connect(
            url, reconnect=False, heartbeat=heartbeat, ssl_domain=trusted, **credentials
        )
        self._link = self._container.create_sender(connection, address, name=name, options=[AtLeastOnce(), _Queue()])
        return self._link

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step after some seconds."""
        self._container.schedule(seconds, _Timer(step))

    def stop(self) -> None:
        """End the run."""
        self._container.stop()

    def wake(self) -> None:
        """Have the connection's `on_wake` called, soon and once for all who ask; from any thread."""
        with self._lock:
            if self._injector is not None and not self._woken:
                self._woken = True
                self._injector.trigger(ApplicationEvent("wake"))

    def awake(self) -> None:
        """Let who asks from now on wake it again."""
        with self._lock:
            self._woken = False

    def close(self) -> None:
        """Give back what it holds; it is of no more use.

        The ring from Proton's C objects to the container and back is seen by no collector. Unbroken, every attempt leaves its
        buffers and its TLS context behind, and a long outage fills the memory.
        """
        with self._lock:
            injector, self._injector = self._injector, None
        if injector is not None:
            # Proton never closes the injector's pipe.
            for end in injector.pipe:
                os.close(end)
        if self._link is not None:
            for endpoint in (self._link.connection, self._link):
                endpoint._attrs.clear()  # noqa: SLF001 - there is no public way.
            self._link = None
        self._container.stop_events()


def message(batch: SealedBatch, source: str, address: str) -> Message:
    """Return a batch as a message (headrace/batch.py)."""
    return Message(
        body=batch.body,
        inferred=True,
        durable=True,
        id=f"{batch.properties['follows']}-{batch.properties['last']}",
        address=address,
        subject="batch",
        content_type=symbol(CONTENT_TYPE),
        content_encoding=symbol(CONTENT_ENCODING),
        group_id=source,
        creation_time=time.time(),
        properties=batch.properties,
    )


def trust(interconnect: Interconnect) -> SSLDomain:
    """Return whom to trust and who we are, read from the files now; raise ConfigurationError when they are of no use."""
    for warning in files.examine(interconnect):
        _log.warning("%s", warning)
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    try:
        if interconnect.authority is not None:
            domain.set_trusted_ca_db(str(interconnect.authority))
        if interconnect.certificate is not None:
            domain.set_credentials(str(interconnect.certificate), str(interconnect.key), None)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    except SSLException as error:
        raise files.unusable(interconnect) from error
    return domain


class _Filling(Polled, IOHandler):  # type: ignore[misc]
    """Proton's reads and writes, but that a socket is written to at once, and until it is full.

    One write each time that a socket takes some again would leave TCP short of data on a long link: it then never learns how much
    the link carries. And to ask first whether a socket takes something costs as much as to write.
    """

    def on_transport(self, event: Event) -> None:
        """Write what has just come to be written."""
        transport = event.transport
        selectable = transport._selectable  # noqa: SLF001 - as in Proton's own handler.
        if selectable and not selectable.is_terminal:
            self._write(transport, selectable)

    def on_selectable_writable(self, event: Event) -> None:
        """Write what is left."""
        selectable = event.selectable
        transport = selectable._transport  # noqa: SLF001 - as above.
        if transport is not None:
            self._write(transport, selectable)

    def _write(self, transport: Any, selectable: Any) -> None:
        """Write what there is, as far as the socket takes it."""
        try:
            for _ in range(_WRITES):
                pending = transport.pending()
                if pending <= 0:
                    break
                transport.pop(selectable.send(transport.peek(pending)))
        except (BlockingIOError, ProtonException):
            # Full; or closed, which the update sees.
            pass
        except OSError:
            transport.close_head()
        self.update(transport, selectable, selectable._reactor.now)  # noqa: SLF001 - as above.


class _Timer(Handler):  # type: ignore[misc]
    """Takes a step when its time has come."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def on_timer_task(self, _event: Event) -> None:
        """Take the step."""
        self._step()


class _Queue(SenderOption):  # type: ignore[misc]
    """Asks a broker for a queue: otherwise one makes a topic of an address it does not know, and forgets what is sent."""

    def apply(self, sender: Endpoint) -> None:
        """Ask on the link's target."""
        sender.target.capabilities.put_object(symbol("queue"))
