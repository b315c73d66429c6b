"""Scratch folders of queries and replays, under the lake's root; their names contain the time of creation.

By their names, since an object store's folders have no time of their own and a local one's does not change while it is read.
"""

import re
import uuid
from datetime import UTC, datetime, timedelta

from headrace.configuration.lake import LakeFile

_FORM = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{32}")
#: After this time whoever made a folder has left it: who needs one for longer takes a new one in time.
ABANDONED = timedelta(days=3)
RENEWED = timedelta(days=1)


def root(lake: LakeFile) -> str:
    """Return the folder that holds all of them."""
    return f"{lake.root}/scratch"


def name(now: datetime | None = None) -> str:
    """Return the name of a new folder."""
    return f"{now or datetime.now(UTC):{_FORM}}-{uuid.uuid4().hex}"


def is_abandoned(folder: str, modified: datetime, now: datetime | None = None) -> bool:
    """Whether a folder can be removed; one without a time in its name, of an earlier release, goes by when it was `modified`."""
    match = _NAME.fullmatch(folder)
    creation = datetime.strptime(match[1], _FORM).replace(tzinfo=UTC) if match else modified
    return (now or datetime.now(UTC)) - creation > ABANDONED
