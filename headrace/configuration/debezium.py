"""`[source.debezium]`: a source that Debezium's engine reads (docs/debezium.md). Experimental."""

from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret

#: Properties that the edge sets itself, because records, positions or the engine's own offsets depend on them.
RESERVED: Final = frozenset(
    {
        "name", "connector.class", "tasks.max", "topic.prefix", "plugin.name", "snapshot.mode", "provide.transaction.metadata",
        "decimal.handling.mode", "time.precision.mode", "interval.handling.mode", "binary.handling.mode",
        "hstore.handling.mode", "column.propagate.source.type", "unavailable.value.placeholder", "tombstones.on.delete",
        "skipped.operations", "heartbeat.interval.ms", "event.processing.failure.handling.mode", "errors.max.retries",
        "message.prefix.exclude.list", "slot.drop.on.stop", "predicates", "transforms",
    }
)  # fmt: skip
#: And all that begin so.
RESERVED_FAMILIES: Final = (
    "column.mask.", "column.truncate.", "converters", "custom.", "incremental.", "message.key.columns", "offset.",
    "predicates.", "schema.history.", "signal.", "topic.", "transforms.",
)  # fmt: skip


class Debezium(Section, frozen=True, kw_only=True):
    """A connector of Debezium's, and its properties as Debezium's documentation has them."""

    connector: Literal["postgres"]
    #: `"database.hostname"`, `"table.include.list"`, …
    properties: dict[str, str | int | bool]
    #: Those whose values are secrets: `"database.password" = "env:NAME"`.
    secrets: dict[str, Secret] = {}
    #: A Java of 21 or newer.
    java: str = "java"
    #: Largest heap of the engine's process.
    memory_megabytes: Annotated[int, Meta(ge=64, le=65_536)] = 512

    def __post_init__(self) -> None:
        """Refuse what the edge sets itself, and secrets among the properties."""
        for name in (*self.properties, *self.secrets):
            if name in RESERVED or name.startswith(RESERVED_FAMILIES):
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


def java_program(java: str, folder: Path) -> str:
    """Return the program to run: a name on PATH, or a path, relative to the file."""
    return str((folder / java).absolute()) if "/" in java else java
