"""Finds what releases wrote."""

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple

from headrace.batch import Batch, decode

SOURCE = "jakarta/bank"
RELEASES = ("0.1", "0.2")
ENGINES = ("postgresql", "mariadb")
_FOLDER = Path(__file__).parent


class Sent(NamedTuple):
    """A batch as it was sent."""

    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    body: bytes

    def decoded(self) -> Batch:
        """Return it as this release's bridge reads it."""
        return decode(self.properties, self.content_encoding, self.body)


def batches(release: str, engine: str) -> list[Sent]:
    """Return the three batches that an edge sent."""
    result = json.loads((_FOLDER / release / engine / "batches.json").read_text(encoding="utf-8"))
    return [Sent(**(each | {"body": b64decode(each["body"])})) for each in result]


def state(release: str, engine: str, to: Path) -> Path:
    """Return a copy of the state folder of an edge that was killed: the first batch acknowledged, the others spooled."""
    folder = to / f"{engine}-{release}"
    shutil.copytree(_FOLDER / release / engine / "state", folder)
    return folder


def position_text(release: str) -> str:
    """Return the text of a committed position."""
    text: str = json.loads((_FOLDER / release / "position.txt").read_text(encoding="utf-8"))
    return text
