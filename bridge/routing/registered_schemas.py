"""Which ids the registry has for the schemas of records in Avro: registered before the first record that needs them.

A thread of its own asks the registry, so a registry that is slow or away holds up nothing but sources whose schemas it has to
register first. What is registered is known until nobody has asked for it for hours, and is looked up again now and then: a
registry that was emptied, or in which an id is another schema's now, stops the records that hold the id. What is not registered
is known as long as somebody asks for it, so what one source asks for in vain, however much, takes neither time nor room from
others.
"""

import logging
import math
import threading
import time
from collections import deque
from itertools import islice
from typing import NamedTuple

from headrace import doors
from headrace.batch import WrittenWith
from headrace.errors import CorruptInput, NeedsOperator, ReplicationError, Retryable
from headrace.registry.client import Incompatible, NotThere, RegistryClient
from headrace.schemas import avro
from headrace.schemas.avro import Schemas

_log = logging.getLogger(__name__)

#: Seconds for which a lane waits for a registry that answers: a new schema then costs its source no new session.
_WAIT_SECONDS = 0.5
#: Seconds for which it waits for all that one batch needs: one that waits for long counts as one whose call hangs.
_BATCH_SECONDS = 2.0
#: Seconds until a registry that failed or refused is asked again; and for how many schemas before it is for new ones.
_AGAIN_SECONDS, _AGAIN_AT_ONCE = 2.0, 10
#: Seconds between two checks of a table's ids; and between those of two tables, so that many cost no more than some.
_LOOK_SECONDS, _LEAST_SECONDS = 30.0, 0.1
#: Seconds for which registered schemas are known after somebody asked for them: registering them again gives the same ids.
_KNOWN_SECONDS = 6 * 3600.0
#: Seconds for which schemas that are not registered are known after somebody asked for them; their size in bytes; and what each
#: costs besides its texts.
_ASKED_SECONDS, _MOST_BYTES, _BESIDES_BYTES = 60.0, 32 << 20, 1024


class Ids(NamedTuple):
    """The ids of a table's schemas in a topic."""

    key: int | None
    value: int


class NeededSchemas(NamedTuple):
    """The schemas of a topic's records of one table."""

    topic: str
    #: The subjects' names, or what is put between the topic and `-key` where a topic has many tables.
    key_subject: str
    value_subject: str
    rule: str
    schemas: Schemas
    #: What the names of the table's records are in.
    namespace: str

    @property
    def is_of_its_table(self) -> bool:
        """Whether the schemas are those of the table that the names are made of."""
        parts = ((self.schemas.key, "Key"), (self.schemas.value, "Envelope"))
        return all(text is None or avro.is_of_table(text, self.namespace, name) for text, name in parts)

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Each subject with the schema for it."""
        subjects = zip((self.key_subject, self.value_subject), self.schemas, strict=True)
        return [(subject, schema) for subject, schema in subjects if schema is not None]

    @property
    def size(self) -> int:
        """What it takes in memory, in bytes."""
        return _BESIDES_BYTES + sum(len(schema) for _, schema in self.changes)


def find_needed(topic: str, written: WrittenWith, prefix: str, rule: str, *, of_one_table: bool) -> NeededSchemas:
    """Return what a table's records need in a topic; `of_one_table`: no other table's records are there.

    Names are made of the table's, never of those in the schemas.
    """
    schemas = Schemas(written.key, written.value).with_prefix(prefix)
    record = avro.namespace(written.schema, written.table, prefix)
    if of_one_table:
        return NeededSchemas(topic, f"{topic}-key", f"{topic}-value", rule, schemas, record)
    # A rule of compatibility is about one record: the name is part of the subject, as Confluent's TopicRecordNameStrategy has it.
    return NeededSchemas(topic, f"{topic}-{record}.Key", f"{topic}-{record}.Envelope", rule, schemas, record)


class _Lost(NeedsOperator):
    """The registry does not have what was registered."""


class _Missing:
    """What is known of schemas that are not registered."""

    __slots__ = ("again_at", "asked_at", "error")

    def __init__(self, now: float) -> None:
        #: When they were last asked for, and when they are tried again, by the monotonic clock.
        self.asked_at = self.again_at = now
        #: Why they are not registered; None before the first answer.
        self.error: ReplicationError | None = None


class _Registered:
    """What is known of schemas that are registered."""

    __slots__ = ("asked_at", "ids")

    def __init__(self, ids: Ids) -> None:
        self.ids, self.asked_at = ids, time.monotonic()


class RegisteredSchemas:
    """What is registered, for all lanes; `turn` is for one thread."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._known: dict[NeededSchemas, _Registered] = {}
        # The order in which they are looked up again.
        self._order: deque[NeededSchemas] = deque()
        # What is to be registered, and its size in bytes; what was asked for last is at the end.
        self._missing: dict[NeededSchemas, _Missing] = {}
        self._bytes = 0
        # What was registered and is not there any more: it never gets other ids.
        self._lost: dict[NeededSchemas, Ids] = {}
        # Subjects and schemas that their rule does not allow: what an operator sets there meanwhile is left alone.
        self._incompatible: set[tuple[str, str]] = set()
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def ids(self, needed: NeededSchemas, until: float = math.inf) -> Ids:
        """Return the ids of schemas, waiting for them no longer than `until` by the monotonic clock.

        Raises NotConnected while the registry does not answer, NeedsOperator when it refuses them, Retryable before it has
        answered, CorruptInput where they are not of their table.
        """
        if (known := self._known.get(needed)) is not None:
            known.asked_at = time.monotonic()
            return known.ids
        if not needed.is_of_its_table:
            raise CorruptInput("a schema of records in Avro is not of the table that the batch names")
        with self._changed:
            now = time.monotonic()
            missing = self._missing.pop(needed, None)
            if missing is None:
                missing = _Missing(now)
                self._bytes += needed.size
                self._changed.notify_all()
            missing.asked_at = now
            self._missing[needed] = missing
            while self._bytes > _MOST_BYTES and len(self._missing) > 1:
                self._forget(next(iter(self._missing)))
            self._changed.wait_for(
                lambda: needed in self._known or missing.error is not None, min(_WAIT_SECONDS, until - now)
            )
            if (known := self._known.get(needed)) is not None:
                return known.ids
        raise missing.error or Retryable(f"the schemas of {needed.value_subject} are not registered yet")

    def turn(self, seconds: float) -> None:
        """Register what is missing, and look up again what is known, waiting for something to do at most `seconds`."""
        with self._changed:
            if not self._due() and (left := self._look_at - time.monotonic()) > 0:
                self._changed.wait(min(seconds, left))
            due = self._due()
        for needed in due:
            if needed in self._lost:
                self._look(needed, self._lost[needed])
            else:
                self._register(needed)
        if time.monotonic() >= self._look_at:
            # One of them: new schemas wait for no more.
            self._look_at_next()
            self._look_at = time.monotonic() + max(
                _LEAST_SECONDS, _LOOK_SECONDS / max(1, len(self._known) + len(self._lost))
            )

    def _look_at_next(self) -> None:
        if self._order:
            self._order.rotate(-1)
            needed = self._order[-1]
            known = self._known[needed]
            if time.monotonic() - known.asked_at < _KNOWN_SECONDS:
                self._look(needed, known.ids)
            else:
                del self._known[needed]
                self._order.pop()

    def look(self) -> None:
        """Look up all that is known, and forget what the registry has lost, with the reason."""
        for needed, known in list(self._known.items()):
            self._look(needed, known.ids)

    def _due(self) -> list[NeededSchemas]:
        """Return what is to be registered, or checked, now: first what was not yet. Forget what nobody asks for any more."""
        now = time.monotonic()
        while self._missing:
            needed, oldest = next(iter(self._missing.items()))
            if now - oldest.asked_at < _ASKED_SECONDS:
                break
            self._forget(needed)
        fresh = [needed for needed, each in self._missing.items() if each.error is None]
        again = (needed for needed, each in self._missing.items() if each.error is not None and each.again_at <= now)
        return [*fresh, *islice(again, _AGAIN_AT_ONCE)]

    def _forget(self, needed: NeededSchemas) -> None:
        if self._missing.pop(needed, None) is not None:
            self._bytes -= needed.size
            self._incompatible.difference_update(needed.changes)

    def _look(self, needed: NeededSchemas, ids: Ids) -> None:
        try:
            for schema, number in zip(needed.schemas, ids, strict=True):
                if schema is not None and number is not None:
                    self._compare(needed, schema, number)
        except _Lost as error:
            self._lost[needed] = ids
            self._settle(needed, None, error)
        except ReplicationError as error:
            # A registry that is down, or behind a proxy's page, has lost nothing: what was known stays known.
            if needed in self._lost:
                self._settle(needed, None, error)
        except Exception as error:  # noqa: BLE001 - as in `_register`.
            self._lost[needed] = ids
            self._settle(needed, None, doors.REGISTRY.refuse(error, needed.value_subject))
        else:
            self._lost.pop(needed, None)
            self._settle(needed, ids, None)

    def _compare(self, needed: NeededSchemas, schema: str, number: int) -> None:
        where = f"schema {number} of {needed.topic}, with which records in Kafka were written"
        hint = "Restore the registry. To go on with new ids, start the bridge again: then older records cannot be read."
        try:
            text = self._client.schema(number)
        except NotThere as error:
            raise _Lost(f"the schema registry has lost {where}: it was emptied or replaced", hint=hint) from error
        if not avro.same(text, schema):
            raise _Lost(f"the schema registry has another schema in place of {where}", hint=hint)

    def _register(self, needed: NeededSchemas) -> None:
        try:
            key = self._in_subject(needed.key_subject, needed.schemas.key, needed.rule)
            value = self._in_subject(needed.value_subject, needed.schemas.value, needed.rule)
            assert value is not None
        except ReplicationError as error:
            self._settle(needed, None, error)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this answer alone.
            self._settle(needed, None, doors.REGISTRY.refuse(error, needed.value_subject))
        else:
            _log.info("%s: registered as %s and %s", needed.value_subject, key or "no key", value)
            self._settle(needed, Ids(key, value), None)

    def _in_subject(self, subject: str, schema: str | None, rule: str) -> int | None:
        """Register a schema, and set the stream's rule for what comes after it.

        Not ahead of it: an operator may have made an exception for this change, of which another bridge knows nothing. Only a
        change that the subject's rule refuses has the stream's tried, once: the file may have a looser one now.
        """
        if schema is None:
            return None
        client, change = self._client, (subject, schema)
        try:
            number = client.register(subject, schema)
        except Incompatible:
            if not rule or change in self._incompatible:
                raise
            client.set_compatibility(subject, rule)
            self._incompatible.add(change)
            number = client.register(subject, schema)
        else:
            if rule:
                client.set_compatibility(subject, rule)
        self._incompatible.discard(change)
        return number

    def _settle(self, needed: NeededSchemas, ids: Ids | None, error: ReplicationError | None) -> None:
        with self._changed:
            if ids is not None:
                if needed not in self._known:
                    self._order.append(needed)
                    self._known[needed] = _Registered(ids)
                self._forget(needed)
            else:
                if self._known.pop(needed, None) is not None:
                    self._order.remove(needed)
                missing = self._missing.get(needed)
                if missing is None:
                    missing = self._missing[needed] = _Missing(time.monotonic())
                    self._bytes += needed.size
                missing.error, missing.again_at = error, time.monotonic() + _AGAIN_SECONDS
            self._changed.notify_all()


class Unregistered:
    """In place of the schemas of a bridge without `[registry]`."""

    def ids(self, needed: NeededSchemas, _until: float = math.inf) -> Ids:
        """Raise NeedsOperator."""
        raise NeedsOperator(
            f"the records of {needed.topic} are in Avro, and this bridge's file has no [registry]",
            hint="Add [registry] with the url of a schema registry, and start the bridge again; or set [records] format = "
            '"json" at the edge.',
        )


BridgeSchemas = RegisteredSchemas | Unregistered


class BatchSchemas:
    """What one batch needs: its lane waits for all of it together no longer than `_BATCH_SECONDS`."""

    def __init__(self, schemas: BridgeSchemas) -> None:
        self._schemas = schemas
        self._until = time.monotonic() + _BATCH_SECONDS

    def ids(self, needed: NeededSchemas) -> Ids:
        """Return the ids of schemas, as those of the bridge do."""
        return self._schemas.ids(needed, self._until)


SchemaIds = BridgeSchemas | BatchSchemas
