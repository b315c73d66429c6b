"""Who the edge says it is to the interconnect: its certificate (EXTERNAL), a user (PLAIN), or nobody (ANONYMOUS).

Guarantees that a password never travels in the clear.
"""

from urllib.parse import urlsplit

from headrace.configuration.edge import Interconnect
from headrace.errors import ConfigurationError

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def credentials(interconnect: Interconnect, url: str) -> dict[str, object]:
    """Return what says who asks, as Proton takes it; raise ConfigurationError rather than send a password in the clear."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"[interconnect] url of {parts.hostname} holds a user or a password",
            hint="Give them as [interconnect] user and password, the password as a reference.",
        )
    if interconnect.user is None:
        return {"allowed_mechs": "EXTERNAL" if interconnect.certificate else "ANONYMOUS"}
    if parts.scheme != "amqps" and parts.hostname not in _LOOPBACK:
        raise ConfigurationError(
            f"[interconnect] user is given, and {url} would carry the password in the clear",
            hint="Use an amqps:// address, or leave out the user.",
        )
    password = interconnect.password.reveal() if interconnect.password else ""
    return {"allowed_mechs": "PLAIN", "user": interconnect.user, "password": password, "allow_insecure_mechs": True}
