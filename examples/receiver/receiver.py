"""A receiver for a branch: it takes deliveries of Headrace, and each counts once, whatever is killed when.

Each message is written to SQLite together with its id, in one transaction, and accepted after that. One that is sent again, as
its acceptance was lost, is known by its id: it is accepted and not written again. What is accepted is never sent
again, so ids have to be kept only for some days.

    python examples/receiver/receiver.py --connect amqps://bridge.example:5671 --address alerts/jakarta --database alerts.sqlite \
        --authority authority.pem --certificate branch.pem --key branch.key
"""

import argparse
import logging
import sqlite3
import time
from typing import Any

from proton import Condition, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container

SCHEMA = """
CREATE TABLE IF NOT EXISTS alerts (id TEXT PRIMARY KEY, key TEXT, body BLOB, received_at REAL);
CREATE INDEX IF NOT EXISTS alerts_by_age ON alerts (received_at);
"""
#: How long an id is remembered, in seconds.
REMEMBERED = 30 * 24 * 3600
_log = logging.getLogger("receiver")


class Receiver(MessagingHandler):
    """Keeps a link to an address, and writes what comes."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        # Nothing is accepted before its transaction; ten messages may be in transit.
        super().__init__(prefetch=10, auto_accept=False)
        self._arguments = arguments
        self._database = sqlite3.connect(arguments.database)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.executescript(SCHEMA)
        with self._database:
            self._database.execute("DELETE FROM alerts WHERE received_at < ?", (time.time() - REMEMBERED,))

    def on_start(self, event: Any) -> None:
        """Connect to all addresses that were given: each bridge sends what it has."""
        for url in self._arguments.connect:
            trusted = None
            if url.startswith("amqps:"):
                trusted = SSLDomain(SSLDomain.MODE_CLIENT)
                trusted.set_trusted_ca_db(self._arguments.authority)
                trusted.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
                if self._arguments.certificate:
                    trusted.set_credentials(self._arguments.certificate, self._arguments.key, None)
            # Proton connects again by itself, with growing pauses.
            connection = event.container.connect(url, ssl_domain=trusted, heartbeat=10)
            event.container.create_receiver(connection, self._arguments.address, options=AtLeastOnce())

    def on_link_opened(self, event: Any) -> None:
        """Log that it receives."""
        _log.info("receiving from %s", event.receiver.source.address)

    def on_message(self, event: Any) -> None:
        """Write a message, and accept it once it is committed."""
        message = event.message
        # Binary is a view into memory that Proton frees.
        key, body = message.properties.get("key"), bytes(message.body)
        try:
            with self._database:
                new = self._database.execute(
                    "INSERT OR IGNORE INTO alerts VALUES (?, ?, ?, ?)", (message.id, key, body, time.time())
                )
                if new.rowcount:
                    self.act(self._database, key, body)
        except ValueError as error:
            # The transaction is rolled back. It would fail each time, so it becomes a dead letter.
            _log.warning("%s: rejected: %s", message.id, error)
            event.delivery.local.condition = Condition("amqp:decode-error", str(error))
            self.reject(event.delivery)
            return
        _log.info("%s: %s", message.id, "new" if new.rowcount else "known already")
        self.accept(event.delivery)

    def act(self, database: sqlite3.Connection, key: str, body: bytes) -> None:
        """Do what the alert is for, in its transaction; a ValueError rejects it. ../fraud/branch.py blocks a card here."""

    def on_transport_error(self, event: Any) -> None:
        """Log why a connection was lost; Proton connects again."""
        _log.warning("connection lost: %s", event.transport.condition)

    def on_link_error(self, event: Any) -> None:
        """End when the address is refused."""
        _log.error("refused: %s", event.link.remote_condition)
        super().on_link_error(event)


def main(receiver: type[Receiver] = Receiver, description: str | None = __doc__) -> None:
    """Receive until it is stopped."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connect", required=True, action="append", metavar="URL", help="again for each bridge")
    for name in ("address", "database"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("authority", "certificate", "key"):
        parser.add_argument(f"--{name}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Container(receiver(parser.parse_args())).run()


if __name__ == "__main__":
    main()
