"""The schema registry's API, as Confluent has it ("Schema Registry API Reference") and others offer it too.

The standard library's client is enough for four requests, and needs no package of its own. Raises NotConnected where the registry
does not answer or fails, and NeedsOperator, with its reason, where it refuses.
"""

import json
import ssl
import time
from base64 import b64encode
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.configuration.sections import Registry
from headrace.errors import NeedsOperator, NotConnected

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND, _CONFLICT, _TOO_MANY, _FAILED = 404, 409, 429, 500
_NO_RIGHTS = frozenset({401, 403})
#: No answer of a registry is as long, in bytes.
_LONGEST, _PART = 16 << 20, 1 << 16


class NotThere(NeedsOperator):
    """The registry has no such subject or schema."""


class Incompatible(NeedsOperator):
    """The registry's rule for a subject does not allow the change of its schema."""


class RegistryClient:
    """Requests to one registry, over one connection, which is kept; used by one thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._connection: HTTPConnection | None = None
        # Of the files with which the connection was made.
        self._stamp: object = None

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema in a subject, which is registered there unless it is already."""
        answer = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        number = answer.get("id")
        # Records have four bytes for it.
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise self._no_registry()
        return number

    def set_compatibility(self, subject: str, rule: str) -> None:
        """Have a subject take the changes of its schema that a rule allows; raise NotThere where it does not know the subject."""
        self._request("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": rule})

    def compatibility(self) -> str:
        """Return the rule for subjects that have none of their own."""
        answer = self._request("GET", "/config", None)
        rule = answer.get("compatibilityLevel") or answer.get("compatibility")
        if not isinstance(rule, str):
            raise self._no_registry()
        return rule

    def schema(self, number: int) -> str:
        """Return the schema of an id; raise NotThere."""
        schema = self._request("GET", f"/schemas/ids/{number}", None).get("schema")
        if not isinstance(schema, str):
            raise self._no_registry()
        return schema

    def _request(self, method: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        registry = self._registry
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE} | self._authorization()
        data = json.dumps(body).encode() if body is not None else None
        try:
            status, reason, answer = self._answer(method, urlsplit(registry.url).path.rstrip("/") + path, data, headers)
            if not 200 <= status < 300:
                registry_reason, is_its_own = _reason(answer)
                raise self._refusal(status, registry_reason or reason, path, is_its_own=is_its_own)
            parsed = json.loads(answer)
        except ssl.SSLError as error:
            raise self._untrusted(error) from error
        except (OSError, HTTPException) as error:
            raise NotConnected(f"the schema registry at {registry.url} does not answer: {error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._no_registry() from error
        if not isinstance(parsed, dict):
            raise self._no_registry()
        return parsed

    def _no_registry(self) -> NeedsOperator:
        return NeedsOperator(
            f"what answers at {self._registry.url} is no schema registry",
            hint="[registry] url needs the path of Confluent's API: /apis/ccompat/v7 for Apicurio.",
        )

    def _answer(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """Return status, reason and body, over the connection that is there, or over another where that one has ended."""
        stamp = _stamp(self._registry)
        if stamp != self._stamp:
            self.close()
        is_kept = self._connection is not None
        if self._connection is None:
            self._connection, self._stamp = self._connect(), stamp
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            body = self._read(answer)
        except (OSError, HTTPException) as error:
            self.close()
            # The registry may have closed it since the last request, each of which may be made twice.
            if is_kept and isinstance(error, ConnectionError | BadStatusLine):
                return self._answer(method, path, data, headers)
            raise
        if not answer.isclosed():
            # Longer than any answer: what is left of it would be taken for the next one.
            self.close()
        return answer.status, answer.reason, body

    def _read(self, answer: HTTPResponse) -> bytes:
        """Return the body of an answer; raise TimeoutError for one that comes too slowly as a whole."""
        until = time.monotonic() + self._registry.timeout_seconds
        body = bytearray()
        while len(body) < _LONGEST and (part := answer.read1(_PART)):
            body += part
            if time.monotonic() > until:
                raise TimeoutError(f"its answer was not whole within {self._registry.timeout_seconds} s")
        if answer.length == 0:
            # It is read to its end, which Python notes in other calls alone.
            answer.close()
        return bytes(body)

    def close(self) -> None:
        """Give the connection up; the next request makes another one."""
        gone, self._connection = self._connection, None
        if gone is not None:
            gone.close()

    def _connect(self) -> HTTPConnection:
        """Return a connection to make: no proxy, the address is what the file has, as for every other connection."""
        parts = urlsplit(self._registry.url)
        host, seconds = parts.hostname or "", self._registry.timeout_seconds
        if parts.scheme == "https":
            return HTTPSConnection(host, parts.port, timeout=seconds, context=self._context())
        return HTTPConnection(host, parts.port, timeout=seconds)

    def _authorization(self) -> dict[str, str]:
        registry = self._registry
        if registry.token is not None:
            return {"Authorization": f"Bearer {registry.token.reveal()}"}
        if registry.user is not None and registry.password is not None:
            both = f"{registry.user}:{registry.password.reveal()}".encode()
            return {"Authorization": f"Basic {b64encode(both).decode()}"}
        return {}

    def _context(self) -> ssl.SSLContext:
        """Return the settings of TLS; certificates are read for each connection, and another is made when a file has changed."""
        registry = self._registry
        try:
            context = ssl.create_default_context(cafile=registry.authority)
            # Debian's Python leaves that to the system's settings.
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if registry.certificate is not None:
                context.load_cert_chain(registry.certificate, registry.key)
        except OSError as error:
            raise NeedsOperator(
                f"the certificates of [registry] cannot be used: {error}", hint="Correct the files that it names."
            ) from error
        return context

    def _refusal(self, code: int, reason: str, path: str, *, is_its_own: bool) -> NeedsOperator | NotConnected:
        """Return what a status means; `is_its_own`: with a body as a registry has it, not one of a proxy or gateway."""
        where = f"the schema registry at {self._registry.url}"
        if code in _NO_RIGHTS:
            for secret in (self._registry.password, self._registry.token):
                if secret is not None:
                    secret.expire()
            return NeedsOperator(
                f"{where} refuses the login ({code}): {reason}",
                hint="Correct the user, token or certificate in [registry], or what it may do there.",
            )
        if code == _NOT_FOUND and is_its_own:
            return NotThere(
                f"{where} has no {path}: {reason}", hint="Look at [registry] url, and at what was removed there."
            )
        if code == _CONFLICT:
            return Incompatible(
                f"{where} refuses {path} as incompatible: {reason}",
                hint="Allow this change: set the subject's compatibility to NONE in the registry. The bridge tries again by "
                "itself, and then sets the stream's rule again. Altering the table back does not help: changes in this form "
                "are in the log.",
            )
        if code >= _FAILED or code in {_TOO_MANY, _NOT_FOUND}:
            return NotConnected(
                f"{where} fails ({code}): {reason}",
                hint="Look at the registry, at what is in front of it, and at [registry] url.",
            )
        return NeedsOperator(f"{where} refuses {path} ({code}): {reason}", hint="The registry's log has more.")

    def _untrusted(self, error: ssl.SSLError) -> NeedsOperator:
        return NeedsOperator(
            f"no TLS connection to the schema registry at {self._registry.url}: {error.reason or error}",
            hint="Look at [registry] authority, certificate and key, and at the registry's own certificate.",
        )


def _stamp(registry: Registry) -> object:
    """Return what changes whenever one of the certificates' files does."""
    paths = [path for path in (registry.authority, registry.certificate, registry.key) if path is not None]
    try:
        return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in map(Path.stat, paths)]
    except OSError:
        # Named when they are read.
        return None


def _reason(body: bytes) -> tuple[str, bool]:
    """Return what a registry gives as its reason, in one line, and whether it is a registry's answer at all.

    These have a number, `error_code`: Confluent, Karapace and Redpanda 40401 to 40403 for what is not there, Apicurio these, 404
    or 0. A gateway, which has JSON too, has none.
    """
    text, is_its_own = body.decode(errors="replace"), False
    try:
        answer = json.loads(text)
        if isinstance(answer, dict):
            text = str(answer.get("message") or answer.get("title") or text)
            is_its_own = type(answer.get("error_code")) is int
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:2000], is_its_own
