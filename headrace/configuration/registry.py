"""How to reach the schema registry in which the schemas of records in Avro are registered, by Confluent's API."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from headrace.configuration.secret import Secret
from headrace.configuration.tls import Certificates

#: Which change of a schema the registry takes (its own setting when left empty).
Compatibility = Literal[
    "", "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class Registry(Certificates, frozen=True, kw_only=True):
    """The section `[registry]`: by `user` and `password`, by `token`, by a client certificate, or without any."""

    #: Of the API, with its path where it has one: `https://registry.example.org/apis/ccompat/v7` for Apicurio.
    url: Annotated[str, Meta(pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$")]
    user: str | None = None
    password: Secret | None = None
    #: A bearer token.
    token: Secret | None = None
    #: Seconds that an answer may take.
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        super().__post_init__()
        if (self.user is None) != (self.password is None):
            raise ValueError("give 'user' and 'password' together")
        if self.user is not None and self.token is not None:
            raise ValueError("give either 'user' and 'password' or 'token'")
        if self._is_private:
            return
        if self.user is not None or self.token is not None:
            raise ValueError("a password or token goes with an https:// address: it would cross the network readable")
        if self.certificate is not None or self.authority is not None:
            raise ValueError("'authority' and 'certificate' go with an https:// address")

    @property
    def _is_private(self) -> bool:
        """Whether a password may be sent there: over TLS, or on this machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "https" or (parts.hostname in _LOCAL and self.certificate is None)

    def not_for_production(self) -> list[str]:
        """Refuse an address without TLS."""
        return [] if self.url.startswith("https://") else ["http:// has no TLS: use https://"]
