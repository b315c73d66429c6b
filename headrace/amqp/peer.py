"""What is known of the other side of a connection, and two ways to end one on which it does not answer."""

import logging
from typing import Any

from headrace.amqp.transport import Endpoint

_log = logging.getLogger(__name__)


def is_answered(connection: Any) -> bool:
    """Return whether the other side has answered the opening of a connection, which may have ended since."""
    return connection is not None and not connection.state & Endpoint.REMOTE_UNINIT


def is_open(endpoint: Any) -> bool:
    """Return whether the other side has opened a link or connection, and not closed it since."""
    return endpoint is not None and bool(endpoint.state & Endpoint.REMOTE_ACTIVE)


def close_silent(transport: Any) -> None:
    """End a transport whose other side was silent for too long; call it when Proton reports an error of the transport.

    Otherwise Proton would wait as long again until a close is written that nobody reads.
    """
    condition = transport.condition
    if condition is not None and "local-idle-timeout" in (condition.description or ""):
        transport.close_head()


def identity(transport: Any) -> str | None:
    """Return the common name of the other side's certificate, which was checked; None without one."""
    return transport.ssl().get_cert_common_name() if transport.authenticated and transport.encrypted else None


def peer_of(connection: Any) -> str:
    """Return the address of the other side of a connection that was accepted."""
    url = getattr(connection, "url", None)
    return f"{url.host}:{url.port}" if url is not None else "?"


def name_of(connection: Any) -> str:
    """Return who the other side of a connection is: the common name of its certificate, its host without one."""
    if connection is None:
        return "?"
    transport = connection.transport
    name = identity(transport) if transport is not None else None
    # Not its port, which is another one each time.
    return name or peer_of(connection).rpartition(":")[0]


def abort(connection: Any, reason: str) -> None:
    """Close a connection at once, without waiting for an answer."""
    transport = connection.transport
    _log.debug("connection from %s closed at once: %s", peer_of(connection), reason)
    if transport is not None:
        transport.close_tail()
        transport.close_head()
