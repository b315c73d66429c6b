"""How many files and connections a process may have open: the limit is raised as far as it may be, and named where it is met.

Systems give a process 1,024 by themselves and let it have more; Kafka's clients and a few hundred sources need more than that.
"""

import errno
import resource
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.findings import Finding

_FIX = (
    "Raise the limit of open files: LimitNOFILE= of a systemd unit, ulimits of a container, or 'ulimit -n' in a shell."
)


def raise_limit() -> None:
    """Let this process have as many descriptors as the system lets it have."""
    # A system may refuse what it has as its limit, and a sandbox the question.
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def reason(error: OSError) -> str:
    """Return the reason of an error, with what to do where the limit was met."""
    words = error.strerror or str(error)
    return f"{words}. {_FIX}" if error.errno in {errno.EMFILE, errno.ENFILE} else words


def limit(needed: int) -> "Iterator[Finding]":
    """Look whether a process with this user's limit may have so many descriptors, about."""
    from headrace.findings import Finding  # noqa: PLC0415 - its printing is imported for the doctors only.

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        yield Finding("open files", "warning", f"{hard:,} at most, where about {needed:,} may be needed", _FIX)
    else:
        shown = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,} at most"
        yield Finding("open files", "ok", f"{shown}, about {needed:,} may be needed")
