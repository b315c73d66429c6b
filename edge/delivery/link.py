"""One AMQP 1.0 connection and its link to `cdc/<source>`: what is sent, and what becomes of it.

Guarantees that nothing is sent pre-settled, and that a batch counts as acknowledged by the outcome `accepted` alone: released,
modified, settled without an outcome and everything lost with the link are sent again, in order, from the oldest batch that is
not accepted. A connection is used once: after its end the sender makes another.
"""

import logging
import threading
import time
from collections.abc import Callable

from edge.delivery import parting
from edge.delivery.amqp import Delivery, Endpoint, Event, Handler, Loop, message, trust
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from headrace.amqp.security import credentials
from headrace.backoff import Backoff
from headrace.certificates import files
from headrace.configuration.edge import Interconnect
from headrace.errors import NotConnected, ReplicationError

_log = logging.getLogger(__name__)

#: A peer that says nothing for so long, in seconds, is gone.
_IDLE_SECONDS = 10.0
#: An attempt that has no link after so long, in seconds, is given up.
_ATTEMPT_SECONDS = 15.0
#: Every so many returns in a row are worth a warning.
_LASTING = 6
#: How often it is checked whether a link waits for credit, in seconds.
_CREDIT_SECONDS = 2.0
#: How long the peer may take to answer a close, in seconds.
_CLOSE_SECONDS = 1.0
#: How often it is looked whether the certificates were renewed, in seconds.
CERTIFICATE_SECONDS = 30.0


class Connection(Handler):  # type: ignore[misc]
    """One connection to the interconnect, from the attempt to connect to its end."""

    def __init__(self, interconnect: Interconnect, url: str, source: str, outbox: Outbox, figures: Figures) -> None:
        self._url = url
        self._interconnect = interconnect
        self._credentials = credentials(interconnect, url)
        self._stamp = files.stamp(interconnect)
        self._tls = trust(interconnect) if url.startswith("amqps:") else None
        self._source = source
        self._address = f"cdc/{source}"
        self._outbox = outbox
        self._figures = figures
        #: Whether the peer ever gave credit.
        self.flowed = False
        #: Called when it first gives credit, in the connection's thread.
        self.on_credit: Callable[[], None] = lambda: None
        #: Whether the peer accepted the attach.
        self.attached = False
        self._credit = figures.credit_wait
        self._problem: ReplicationError | None = None
        #: Times that sending went back since the acknowledged tail moved, and the pauses after them.
        self._returns = 0
        self._pauses = Backoff(first=0.05, longest=5.0)
        self._link: Endpoint | None = None
        self._ending = False
        self._closing = False
        self._loop = Loop(self, f"headrace-edge {source}")

    def carry(self, stopping: threading.Event) -> ReplicationError | None:
        """Connect, and send until the connection ends; return why it ended, None when it was closed from here."""
        try:
            if not stopping.is_set():
                self._loop.run()
        except OSError as error:
            self._note(NotConnected(f"interconnect {self._url} cannot be reached: {error.strerror or error}"))
        finally:
            self._loop.close()
            self._link = self._tls = None
        return self._problem

    def wake(self) -> None:
        """Make the connection look at the outbox; from any thread."""
        self._loop.wake()

    def close(self) -> None:
        """Close the connection; from any thread."""
        self._closing = True
        self.wake()

    # What Proton calls, in the sender's thread.

    def on_reactor_init(self, _event: Event) -> None:
        """Start to connect."""
        self._link = self._loop.attach(
            self._url,
            self._address,
            # Named for the source, so that it is known in the far side's lists, and the same after every reconnect.
            f"headrace {self._source}",
            heartbeat=_IDLE_SECONDS,
            trusted=self._tls,
            credentials=self._credentials,
        )
        self._loop.after(_ATTEMPT_SECONDS, self._give_up)
        if self._interconnect.certificate is not None or self._interconnect.authority is not None:
            self._loop.after(CERTIFICATE_SECONDS, self._renew)

    def on_wake(self, _event: Event) -> None:
        """Send what was put into the outbox, or close."""
        self._loop.awake()
        if self._closing:
            self._end(None)
        else:
            self._send()

    def on_link_remote_open(self, event: Event) -> None:
        """Note that the peer accepted the attach; an answer without a target is the first half of a refusal."""
        if not event.link.remote_target.address:
            return
        self.attached = True
        self._credit.attached()
        _log.info("attached to %s at %s", self._address, self._url)
        self._loop.after(_CREDIT_SECONDS, self._look_for_credit)

    def on_link_flow(self, event: Event) -> None:
        """Send as far as the credit goes."""
        if event.link.credit > 0:
            self._credit.given()
        if event.link.credit > 0 and not self.flowed:
            self.flowed = True
            self._figures.interconnect_connections += 1
            self._figures.interconnect_connected, self._figures.interconnect_problem = 1, ""
            self.on_credit()
            _log.info("%s gives credit for %d batches at %s", self._url, event.link.credit, self._address)
        self._send()
        # What is left when a router drains the link it wants back at once; otherwise nothing happens.
        event.link.drained()

    def on_delivery(self, event: Event) -> None:
        """Note the outcome of a delivery."""
        delivery = event.delivery
        if not delivery.updated:
            return
        number, outcome = int(delivery.tag), delivery.remote_state
        if outcome == Delivery.ACCEPTED:
            self._figures.accepted += 1
            self._figures.accepted_at = time.monotonic()
            if self._outbox.accepted(number):
                self._returns = 0
                self._pauses.reset()
        elif outcome == Delivery.REJECTED:
            self._figures.rejected += 1
            self._end(parting.rejected(self._source, delivery.remote.condition))
        elif outcome in {Delivery.RELEASED, Delivery.MODIFIED} or delivery.settled:
            self._returned(number)
        else:
            return
        delivery.settle()
        self._send()

    def on_link_remote_close(self, event: Event) -> None:
        """End: refused, or lost."""
        self._end(parting.link_closed(self._url, self._address, event.link.remote_condition))

    def on_session_remote_close(self, event: Event) -> None:
        """End: lost."""
        reason = parting.said(event.session.remote_condition)
        self._end(NotConnected(f"interconnect {self._url} closed the session: {reason}"))

    def on_connection_remote_close(self, event: Event) -> None:
        """End: refused, or lost."""
        self._end(parting.connection_closed(self._url, event.connection.remote_condition))

    def on_transport_error(self, event: Event) -> None:
        """Note why the transport ended; `on_transport_closed` follows."""
        condition = event.transport.condition
        self._note(parting.way_lost(self._interconnect, self._url, condition, opened=_opened(event.connection)))
        if condition is not None and "local-idle-timeout" in (condition.description or ""):
            # Proton would wait as long again until a close is written that nobody reads.
            event.transport.close_head()

    def on_transport_closed(self, event: Event) -> None:
        """End the loop."""
        if not self._ending:
            self._note(parting.closed_silently(self._url, opened=_opened(event.connection)))
        self._loop.stop()

    # Steps of these.

    def _send(self) -> None:
        link = self._link
        if link is None or self._ending or not link.state & Endpoint.REMOTE_ACTIVE:
            return
        while link.credit > 0 and (taken := self._outbox.take()) is not None:
            number, batch = taken
            link.send(message(batch, self._source, self._address), tag=str(number))
            self._figures.sent += 1
            self._figures.sent_bytes += len(batch.body)
        self._figures.credit = link.credit
        if link.credit == 0:
            self._credit.used_up()

    def _returned(self, number: int) -> None:
        self._figures.returned += 1
        if not self._outbox.returned(number):
            return
        pause = self._pauses.pause()
        position, _ = self._outbox.progress()
        self._returns += 1
        if self._returns % _LASTING:
            _log.info("a batch came back: sending again from what follows %s in %.2f s", position, pause)
        else:
            _log.warning(
                "the far side has returned what follows %s %d times in a row. If that lasts, see its log, and compare "
                "'headrace edge position' with 'headrace bridge positions'",
                position,
                self._returns,
            )
        self._loop.after(pause, self._go_on)

    def _go_on(self) -> None:
        if not self._ending:
            self._outbox.go_on()
            self._send()

    def _give_up(self) -> None:
        if self._link is None or not self._link.state & Endpoint.REMOTE_ACTIVE:
            self._end(NotConnected(f"interconnect {self._url} did not answer within {_ATTEMPT_SECONDS:.0f} s"))

    def _look_for_credit(self) -> None:
        """Warn about a link that is attached and gets no credit, which nothing else would show."""
        if self._ending:
            return
        if self._credit.is_due():
            _log.warning("%s at %s: %s", self._address, self._url, self._credit)
        self._loop.after(_CREDIT_SECONDS, self._look_for_credit)

    def _renew(self) -> None:
        """End when the certificates were renewed: the next connection uses the new ones."""
        if files.stamp(self._interconnect) != self._stamp:
            self._end(NotConnected(f"the certificates for {self._url} were renewed"))
        elif not self._ending:
            self._loop.after(CERTIFICATE_SECONDS, self._renew)

    def _note(self, problem: ReplicationError) -> None:
        if self._problem is None and not self._closing:
            self._problem = problem

    def _end(self, problem: ReplicationError | None) -> None:
        if problem is not None:
            self._note(problem)
        if not self._ending and self._link is not None:
            self._ending = True
            self._link.close()
            self._link.connection.close()
            self._loop.after(_CLOSE_SECONDS, self._loop.stop)


def _opened(connection: Endpoint) -> bool:
    """Return whether the peer had answered the opening of a connection."""
    return connection is not None and not connection.state & Endpoint.REMOTE_UNINIT
