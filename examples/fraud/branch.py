"""A branch's receiver: it blocks the card that an alert names, once for each fraud, in a database of its own.

It is the receiver of ../receiver with two lines of SQL more. A delivery that is sent again is known by its message's id. The
stream job may write an alert twice, and those are two messages: the alert's own id is the key of `blocks`.

    python examples/fraud/branch.py --connect amqps://bridge.example:5671 --address alerts/jakarta --database jakarta.sqlite \
        --authority authority.pem --certificate branch.pem --key branch.key
"""

import argparse
import json
import sqlite3
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "receiver"))

from receiver import Receiver, main

SCHEMA = """
CREATE TABLE IF NOT EXISTS blocks (alert TEXT PRIMARY KEY, card TEXT NOT NULL, branch TEXT NOT NULL, at REAL, copies INTEGER);
CREATE INDEX IF NOT EXISTS blocks_by_card ON blocks (card);
"""


class Branch(Receiver):
    """Blocks cards: a card is blocked while `blocks` has a row for it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self._database.executescript(SCHEMA)

    def act(self, database: sqlite3.Connection, key: str, body: bytes) -> None:
        """Block the card; another copy of the same alert is counted and changes nothing else."""
        try:
            alert = json.loads(body)
            row = (str(alert["id"]), str(alert["card"]), key, time.time())
        except (KeyError, TypeError) as error:
            raise ValueError("not an alert") from error
        database.execute(
            "INSERT INTO blocks VALUES (?, ?, ?, ?, 1) ON CONFLICT (alert) DO UPDATE SET copies = copies + 1", row
        )


if __name__ == "__main__":
    main(Branch, __doc__)
