"""Free TCP ports on 127.0.0.1 for servers that keep their port when they are restarted.

The ports lie below the range from which the kernel takes the local end of outgoing connections. Otherwise, while a
server is down, some client's connection (even one to that very server, which then talks to itself) can take its port.
A free port may be taken before the server binds it: the server's start then fails and is tried with another.
"""

import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator

_LOWEST = 10240
_KEPT = "port"
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortTaken(Exception):  # noqa: N818 - a state, caught by whoever picked the port.
    """The server could not bind its port: another process has it."""


def start_on_port(start: Callable[[int], None], *, kept: int, what: str) -> None:
    """Start a server on the port that it has kept, or on a free one if it has none (0).

    `start` raises PortTaken if it cannot have the port. Raises NeedsOperator if another process has the kept one.
    """
    for _ in range(10):
        try:
            start(kept or free_port())
        except PortTaken:
            if kept and not is_free(kept):
                raise NeedsOperator(
                    f"{what} cannot listen on its port {kept}: another process has it.",
                    hint="Stop what listens there, or delete the server's folder to start again.",
                ) from None
        else:
            return
    raise NeedsOperator(f"{what} found no free port on 127.0.0.1.", hint="See what takes them: ss -ltnp")


def keep_port(folder: Path, port: int) -> None:
    """Note the port of a server that has no other place for it, in its folder."""
    (folder / _KEPT).write_text(str(port))


def kept_port(folder: Path) -> int:
    """Return the port that was noted last; 0 if none was."""
    with suppress(OSError, ValueError):
        return int((folder / _KEPT).read_text())
    return 0


def free_port() -> int:
    """Return a port that could be bound a moment ago; raise OSError if there is none."""
    try:
        highest = int(_OUTGOING.read_text().split()[0]) - 1
    except (OSError, ValueError, IndexError):
        highest = 32767
    for _ in range(200 if highest > _LOWEST + 1000 else 0):
        port = random.randint(_LOWEST, highest)  # noqa: S311 - nothing secret.
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Say whether the port can be bound now, by a server that may reuse the addresses of closed connections."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
