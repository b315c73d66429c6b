"""A simulated schema registry, in place of the client's connection to one: which schemas have an id, and which are refused."""

from typing import Any

import msgspec

from headrace.errors import NotConnected
from headrace.registry.client import Incompatible, NotThere
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import world

#: How long a client waits for an answer, in seconds.
_TIMEOUT = 5.0


class Registry:
    """One registry."""

    #: That of the present run.
    present: "Registry"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: Ids by schema, from 1 on.
        self.ids: dict[str, int] = {}
        #: Until when each subject takes no other schema than those that it has.
        self.refused_until: dict[str, float] = {}
        self._subjects: dict[str, set[str]] = {}
        self.hangs_until = self.fails_until = 0.0
        Registry.present = self

    def allow(self, subject: str, schema: str) -> None:
        """Register a schema whatever the subject refuses, as an operator does it."""
        self._subjects.setdefault(subject, set()).add(schema)
        self.ids.setdefault(schema, len(self.ids) + 1)

    def take(self, subject: str, schema: str) -> int | None:
        """Return the id of a schema in a subject; None where the subject refuses it."""
        schemas = self._subjects.setdefault(subject, set())
        if schema not in schemas and schemas and self._scheduler.now < self.refused_until.get(subject, 0.0):
            return None
        schemas.add(schema)
        return self.ids.setdefault(schema, len(self.ids) + 1)


class RegistryClient:
    """headrace.registry.client.RegistryClient."""

    def __init__(self, _registry: Any) -> None:
        """Connect with the first request."""

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema."""
        number = self._answer().take(subject, schema)
        if number is None:
            raise Incompatible(f"{subject} does not take the schema", hint="Allow it.")
        return number

    def set_compatibility(self, _subject: str, _rule: str) -> None:
        """Take any rule."""
        self._answer()

    def schema(self, number: int) -> str:
        """Return the schema of an id."""
        for schema, each in self._answer().ids.items():
            if each == number:
                return schema
        raise NotThere(f"no schema {number}", hint="")

    @staticmethod
    def _answer() -> Registry:
        registry, scheduler = Registry.present, world.scheduler
        scheduler.sleep(scheduler.random.random() ** 3 * 0.1)
        if scheduler.now < registry.hangs_until:
            scheduler.sleep(_TIMEOUT)
            raise NotConnected("the schema registry does not answer: timed out")
        if scheduler.now < registry.fails_until:
            raise NotConnected("the schema registry does not answer: 503")
        return registry


def table_schema(table: str, part: str, version: int, prefix: str = "@prefix") -> str:
    """Return the schema of a table's keys or values; `part` is Key or Envelope."""
    schema = {"type": "record", "name": part, "namespace": f"{prefix}.public.{table}", "fields": [], "version": version}
    return msgspec.json.encode(schema).decode()
