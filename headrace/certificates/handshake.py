"""Why a TLS handshake failed, in words that name who has to do what.

OpenSSL's own message is "certificate verify failed" for an expired, a foreign and a misnamed certificate; `why` connects to the
server once more to distinguish them. Nothing is sent to a server that is not trusted. Called by edge and bridge after a failure.
"""

import socket
import ssl
from urllib.parse import urlsplit

from headrace.configuration.tls import Certificates

_SECONDS = 5.0

#: What is in OpenSSL's reason, and what it means for the operator.
_MEANINGS = (
    ("certificate required", "the other side requires a client certificate. Give [interconnect] certificate and key"),
    (
        "peer did not return a certificate",
        "it showed no client certificate. Give [interconnect] certificate and key there",
    ),
    (
        "alert unknown ca",
        "the other side does not know the authority of this side's certificate. Use one of its authority's",
    ),
    ("alert certificate expired", "the other side finds this side's certificate expired. Renew it"),
    (
        "alert bad certificate",
        "the other side refuses this side's certificate. Use one for this purpose, of its authority's",
    ),
    ("alert unsupported certificate", "the other side refuses this side's certificate. Use one made for this purpose"),
    ("alert certificate revoked", "this side's certificate is revoked. Get another"),
    ("wrong version number", "the port does not speak TLS. Check the port, or use an amqp:// address"),
    ("http request", "it spoke no TLS. Use an amqps:// address there"),
    ("unexpected eof", "the connection was closed during the handshake"),
)


def meaning(reason: str) -> str:
    """Return what OpenSSL's reason means, empty when there is nothing to add to it."""
    return next((words for part, words in _MEANINGS if part in reason), "")


def why(url: str, files: Certificates) -> str:
    """Return why the server at an amqps address is not trusted; empty when it is, or does not answer now."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 5671
    try:
        context = ssl.create_default_context(cafile=files.authority)
        with (
            socket.create_connection((host, port), timeout=_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return _explained(error.verify_message, host, files)
    except OSError:
        return ""


def _explained(reason: str, host: str, files: Certificates) -> str:
    authority = f"those in {files.authority}" if files.authority else "the system's"
    if "expired" in reason:
        return "its certificate has expired. It must be renewed there"
    if "mismatch" in reason or "doesn't match" in reason or "not valid for" in reason:
        return f"its certificate is not for the name {host!r}. Use the DNS name that is in it, or have {host!r} put into it"
    if "not yet valid" in reason:
        return "its certificate is not valid yet. Check the clocks"
    if "issuer" in reason or "self-signed" in reason or "self signed" in reason:
        return (
            f"its certificate comes from none of the authorities that are trusted here, {authority}. Name its authority"
        )
    return reason
