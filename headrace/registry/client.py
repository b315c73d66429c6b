"""The schema registry's API, as Confluent has it ("Schema Registry API Reference") and others offer it too.

The standard library's client is enough for four requests, and needs no package of its own. Raises NotConnected where the registry
does not answer or fails, and NeedsOperator, with its reason, where it refuses.
"""

import json
import ssl
from base64 import b64encode
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from headrace.configuration.sections import Registry
from headrace.errors import NeedsOperator, NotConnected

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND, _CONFLICT, _TOO_MANY, _FAILED = 404, 409, 429, 500
_NO_RIGHTS = frozenset({401, 403})
#: No answer of a registry is as long, in bytes.
_LONGEST = 16 << 20


class NotThere(NeedsOperator):
    """The registry has no such subject or schema."""


class Incompatible(NeedsOperator):
    """The registry's rule for a subject does not allow the change of its schema."""


class RegistryClient:
    """Requests to one registry; used by one thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema in a subject, which is registered there unless it is already."""
        answer = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        number = answer.get("id")
        # Records have four bytes for it.
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise self._not_one()
        return number

    def set_compatibility(self, subject: str, rule: str) -> None:
        """Have a subject take the changes of its schema that a rule allows; raise NotThere where it does not know the subject."""
        self._request("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": rule})

    def compatibility(self) -> str:
        """Return the rule for subjects that have none of their own."""
        answer = self._request("GET", "/config", None)
        rule = answer.get("compatibilityLevel") or answer.get("compatibility")
        if not isinstance(rule, str):
            raise self._not_one()
        return rule

    def schema(self, number: int) -> str:
        """Return the schema of an id; raise NotThere."""
        schema = self._request("GET", f"/schemas/ids/{number}", None).get("schema")
        if not isinstance(schema, str):
            raise self._not_one()
        return schema

    def _request(self, method: str, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        registry = self._registry
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE} | self._authorization()
        data = json.dumps(body).encode() if body is not None else None
        request = Request(registry.url.rstrip("/") + path, data, headers, method=method)  # noqa: S310 - its address is http or https.
        try:
            # No proxy: the address is what the file has, as for every other connection.
            opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self._context()))
            with opener.open(request, timeout=registry.timeout_seconds) as answer:
                found = json.loads(answer.read(_LONGEST))
        except HTTPError as error:
            raise self._refusal(error, path) from error
        except ssl.SSLError as error:
            raise self._untrusted(error) from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise self._untrusted(error.reason) from error
            raise NotConnected(f"the schema registry at {registry.url} does not answer: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise NotConnected(f"the schema registry at {registry.url} does not answer: {error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._not_one() from error
        if not isinstance(found, dict):
            raise self._not_one()
        return found

    def _not_one(self) -> NeedsOperator:
        return NeedsOperator(
            f"what answers at {self._registry.url} is no schema registry",
            hint="[registry] url needs the path of Confluent's API: /apis/ccompat/v7 for Apicurio.",
        )

    def _authorization(self) -> dict[str, str]:
        registry = self._registry
        if registry.token is not None:
            return {"Authorization": f"Bearer {registry.token.reveal()}"}
        if registry.user is not None and registry.password is not None:
            both = f"{registry.user}:{registry.password.reveal()}".encode()
            return {"Authorization": f"Basic {b64encode(both).decode()}"}
        return {}

    def _context(self) -> ssl.SSLContext:
        """Return the settings of TLS; certificates are read for each request, so a renewed file takes effect at once."""
        registry = self._registry
        try:
            context = ssl.create_default_context(cafile=registry.authority)
            if registry.certificate is not None:
                context.load_cert_chain(registry.certificate, registry.key)
        except OSError as error:
            raise NeedsOperator(
                f"the certificates of [registry] cannot be used: {error}", hint="Correct the files that it names."
            ) from error
        return context

    def _refusal(self, error: HTTPError, path: str) -> NeedsOperator | NotConnected:
        reason = _reason(error)
        where = f"the schema registry at {self._registry.url}"
        if error.code in _NO_RIGHTS:
            for secret in (self._registry.password, self._registry.token):
                if secret is not None:
                    secret.expire()
            return NeedsOperator(
                f"{where} refuses the login ({error.code}): {reason}",
                hint="Correct the user, token or certificate in [registry], or what it may do there.",
            )
        if error.code == _NOT_FOUND:
            return NotThere(
                f"{where} has no {path}: {reason}", hint="Look at [registry] url, and at what was removed there."
            )
        if error.code == _CONFLICT:
            return Incompatible(
                f"{where} refuses {path} as incompatible: {reason}",
                hint="Allow this change: set the subject's compatibility to NONE in the registry. The bridge tries again by "
                "itself, and then sets the stream's rule again. Altering the table back does not help: changes in this form "
                "are in the log.",
            )
        if error.code >= _FAILED or error.code == _TOO_MANY:
            return NotConnected(f"{where} fails ({error.code}): {reason}")
        return NeedsOperator(f"{where} refuses {path} ({error.code}): {reason}", hint="The registry's log has more.")

    def _untrusted(self, error: ssl.SSLError) -> NeedsOperator:
        return NeedsOperator(
            f"no TLS connection to the schema registry at {self._registry.url}: {error.reason or error}",
            hint="Look at [registry] authority, certificate and key, and at the registry's own certificate.",
        )


def _reason(error: HTTPError) -> str:
    """Return what a registry gives as its reason, in one line."""
    try:
        text = error.read(_LONGEST).decode(errors="replace")
    except (OSError, HTTPException):
        return str(error.reason)
    try:
        answer = json.loads(text)
        text = str(answer.get("message") or answer.get("title") or text) if isinstance(answer, dict) else text
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:2000] or str(error.reason)
