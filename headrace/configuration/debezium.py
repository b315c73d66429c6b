"""`[source.debezium]`: a source that Debezium's engine reads (docs/debezium.md). Experimental."""

import hashlib
from typing import Annotated, Final, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret

#: By connector: its class, and what it gets unless the file has it.
CONNECTORS: Final[dict[str, dict[str, str]]] = {
    "postgres": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "slot.name": "headrace",
        "publication.name": "headrace",
    },
}
#: What records, positions and the chain depend on, and so no file may set.
_OURS: Final = {
    "name": "headrace",
    "topic.prefix": "headrace",
    "plugin.name": "pgoutput",
    "provide.transaction.metadata": "true",
    "heartbeat.interval.ms": "2000",
    "offset.flush.interval.ms": "0",
    "errors.max.retries": "0",
    "event.processing.failure.handling.mode": "fail",
    "event.converting.failure.handling.mode": "fail",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "message.prefix.exclude.list": ".*",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "binary.handling.mode": "bytes",
    "column.propagate.source.type": ".*",
}
#: And what is set elsewhere, or would change what is read from the log.
_RESERVED: Final = {
    "connector.class", "flush.lsn.source", "lsn.flush.mode", "predicates", "slot.drop.on.stop",
    "slot.seek.to.known.offset.on.start", "snapshot.mode", "tasks.max", "transaction.metadata.factory", "transforms",
    "unavailable.value.placeholder",
} | _OURS.keys()  # fmt: skip
#: And all that begin so.
_RESERVED_FAMILIES: Final = (
    "column.mask.", "column.truncate.", "converters", "custom.", "incremental.", "message.key.columns", "offset.",
    "predicates.", "schema.history.", "signal.", "topic.", "transforms.",
)  # fmt: skip
#: What begins so sets how the server is reached and how much is read at once, and so changes no transaction.
_OF_CONNECTION: Final = (
    "connection.", "database.hostname", "database.port", "database.ssl", "database.tcpKeepAlive", "database.user",
    "max.batch.size", "max.queue.size", "poll.interval.ms", "query.fetch.size", "snapshot.fetch.size",
    "status.update.interval.ms",
)  # fmt: skip


class Debezium(Section, frozen=True, kw_only=True):
    """A connector of Debezium's, and its properties as Debezium's documentation has them."""

    connector: Literal["postgres"]
    #: `"database.hostname"`, `"table.include.list"`, …
    properties: dict[str, str | int | bool]
    #: Those whose values are secrets: `"database.password" = "env:NAME"`.
    secrets: dict[str, Secret] = {}
    #: A Java of 21 or newer: a name on PATH, or a whole path.
    java: str = "java"
    #: Largest heap of the engine's process.
    memory_megabytes: Annotated[int, Meta(ge=64, le=65_536)] = 512

    def __post_init__(self) -> None:
        """Refuse what the edge sets itself, and secrets among the properties."""
        for name in (*self.properties, *self.secrets):
            if name in _RESERVED or name.startswith(_RESERVED_FAMILIES):
                instead = "set 'mode' of 'snapshot'" if name == "snapshot.mode" else "leave it out: the edge sets it"
                raise ValueError(f"{name!r} is not for 'properties': {instead}")
        if words := [name for name in self.properties if "password" in name or "secret" in name]:
            raise ValueError(f"{words[0]!r} is a secret: give its reference in 'secrets'")

    def not_for_production(self) -> list[str]:
        """Refuse a server whose certificate is not checked."""
        if self.properties.get("database.sslmode") == "verify-full":
            return []
        return ['"database.sslmode" has to be "verify-full"']

    def __str__(self) -> str:
        """Return the address without any secret."""
        at = [str(self.properties.get(f"database.{name}", "")) for name in ("hostname", "port", "dbname")]
        return f"{at[0]}:{at[1] or 5432}/{at[2]} (Debezium)"

    def fingerprint(self) -> str:
        """Return a sum over the properties that decide what a transaction has; secrets do not."""
        named = sorted(
            (name, str(value)) for name, value in self.properties.items() if not name.startswith(_OF_CONNECTION)
        )
        return hashlib.sha256(repr((self.connector, named)).encode()).hexdigest()

    def settings(self, mode: str, placeholder: str) -> dict[str, str]:
        """Return all properties, secrets revealed: for the engine's process alone, never for a log.

        `placeholder` is what Debezium writes for a value that the log does not carry.
        """
        given = {
            name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in self.properties.items()
        }
        revealed = {name: secret.reveal() for name, secret in self.secrets.items()}
        ours = {"snapshot.mode": mode, "unavailable.value.placeholder": placeholder}
        # What waits in Debezium's own queue, of rows of any size, has to fit its memory.
        queue = {"max.queue.size.in.bytes": str(self.memory_megabytes << 18)}
        return CONNECTORS[self.connector] | queue | given | revealed | _OURS | ours
