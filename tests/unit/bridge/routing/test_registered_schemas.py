"""What is registered is remembered; what the registry has lost gets no other id."""

import pytest

from bridge.routing.registered_schemas import BatchSchemas, RegisteredSchemas, find_needed
from headrace.batch import WrittenWith
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, Retryable
from headrace.registry.client import Incompatible, NotThere
from tests.unit.bridge.routing.test_partitioner_avro import WRITTEN


class Registry:
    """A registry in memory; raises `error` while it is set."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.rules: dict[str, str] = {}
        self.error: Exception | None = None
        self.requests = 0
        #: What a rule other than NONE does not allow.
        self.refused = ""

    def register(self, subject: str, schema: str) -> int:
        self._request()
        if schema == self.refused and self.rules.get(subject) != "NONE":
            raise Incompatible("incompatible")
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1

    def set_compatibility(self, subject: str, rule: str) -> None:
        self._request()
        self.rules[subject] = rule

    def schema(self, number: int) -> str:
        self._request()
        try:
            return self.schemas[number - 1]
        except IndexError:
            raise NotThere(f"no schema {number}") from None

    def _request(self) -> None:
        self.requests += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def now(monkeypatch):
    """The time, which passes when a test says so."""
    time = [1000.0]
    monkeypatch.setattr("bridge.routing.registered_schemas.time.monotonic", lambda: time[0])
    return time


@pytest.fixture
def registered(registry, monkeypatch):
    """Registered schemas that ask again at once, and whose lanes wait for nothing."""
    monkeypatch.setattr("bridge.routing.registered_schemas._AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("bridge.routing.registered_schemas._WAIT_SECONDS", 0.0)
    return RegisteredSchemas(registry)


NEEDED = find_needed("s.public.t", WRITTEN, "s", "FULL", of_one_table=True)


def tables_of(count, name="t"):
    return [find_needed(f"s.public.{name}{n}", WRITTEN, "s", "", of_one_table=True) for n in range(count)]


def ask(registered, needed=NEEDED):
    with pytest.raises(Retryable):
        registered.ids(needed)
    registered.turn(0)


def test_schemas_are_registered_once_with_the_rule_of_the_stream(registry, registered):
    ask(registered)
    ids = registered.ids(NEEDED)
    before = registry.requests
    assert registered.ids(NEEDED) == ids == (1, 2)
    registered.turn(0)
    assert registry.requests == before
    assert registry.rules == {"s.public.t-key": "FULL", "s.public.t-value": "FULL"}


def test_a_table_without_a_key_has_one_schema(registered):
    needed = find_needed("s.public.t", WrittenWith(1, "public", "t", None, WRITTEN.value), "s", "", of_one_table=True)
    ask(registered, needed)
    assert registered.ids(needed).key is None


@pytest.mark.parametrize("error", [NotConnected("away"), NeedsOperator("incompatible")])
def test_a_registry_that_is_away_or_refuses_is_asked_again(registry, registered, error):
    registry.error = error
    ask(registered)
    with pytest.raises(type(error), match=error.message):
        registered.ids(NEEDED)
    registry.error = None
    registered.turn(0)
    assert registered.ids(NEEDED) == (1, 2)


def test_a_change_that_an_operator_allows_is_registered_and_the_rule_of_the_stream_is_set_again(registry, registered):
    registry.refused = NEEDED.schemas.value
    ask(registered)
    registered.turn(0)
    with pytest.raises(Incompatible):
        registered.ids(NEEDED)
    registry.rules["s.public.t-value"] = "NONE"
    registered.turn(0)
    assert registered.ids(NEEDED) == (1, 2)
    assert registry.rules["s.public.t-value"] == "FULL"


def test_an_exception_outlives_a_restart_of_the_bridge(registry, registered):
    registry.refused = NEEDED.schemas.value
    ask(registered)
    again = RegisteredSchemas(registry)
    registry.rules["s.public.t-value"] = "NONE"
    ask(again)
    assert again.ids(NEEDED) == (1, 2)
    assert registry.rules["s.public.t-value"] == "FULL"


def test_a_rule_that_the_file_loosens_lets_the_change_pass(registry, registered):
    registry.refused = NEEDED.schemas.value
    ask(registered)
    again = RegisteredSchemas(registry)
    loose = find_needed("s.public.t", WRITTEN, "s", "NONE", of_one_table=True)
    ask(again, loose)
    assert again.ids(loose) == (1, 2)


@pytest.mark.parametrize(
    "error", [NotConnected("away"), NeedsOperator("a page for logging in"), NeedsOperator("refuses the login (401)")]
)
def test_what_is_registered_needs_no_registry_that_answers_nor_one_that_is_itself(registry, registered, error):
    """A proxy in front of it that showed a page stopped every source with records in Avro."""
    ask(registered)
    registry.error = error
    registered.look()
    assert registered.ids(NEEDED) == (1, 2)


def test_a_registry_that_was_emptied_is_noticed_and_gives_no_other_ids(registry, registered):
    ask(registered)
    held, registry.schemas = registry.schemas, []
    registered.look()
    with pytest.raises(NeedsOperator, match=r"has lost schema 1 of s\.public\.t"):
        registered.ids(NEEDED)
    registered.turn(0)
    assert registry.schemas == []
    # what is in front of it changes nothing
    registry.error = NeedsOperator("a page for logging in")
    registered.turn(0)
    with pytest.raises(NeedsOperator, match="a page for logging in"):
        registered.ids(NEEDED)
    registry.error = None
    registered.turn(0)
    assert registry.schemas == []
    # once it is restored, the records go on
    registry.schemas = held
    registered.turn(0)
    assert registered.ids(NEEDED) == (1, 2)


def test_an_id_that_is_another_schemas_by_now_is_noticed(registry, registered):
    ask(registered)
    registry.schemas = registry.schemas[::-1]
    registered.look()
    with pytest.raises(NeedsOperator, match="another schema in place of schema 1"):
        registered.ids(NEEDED)


@pytest.mark.parametrize("of_one_table", [True, False])
@pytest.mark.parametrize(
    ("schema", "table"), [("public", "accounts"), ("other", "t"), ("public", "t.Envelope"), ("@prefix.public", "t")]
)
def test_a_schema_of_another_table_is_refused(schema, table, of_one_table):
    """S5: what a batch says of a schema does not name subjects, and a schema is its table's own."""
    written = WrittenWith(1, schema, table, WRITTEN.key, WRITTEN.value)
    needed = find_needed("s", written, "s", "", of_one_table=of_one_table)
    schemas = RegisteredSchemas(None)
    with pytest.raises(CorruptInput, match="not of the table"):
        schemas.ids(needed)
    assert schemas._missing == {}


def test_subjects_are_named_by_the_table_alone():
    """S5."""
    other = WRITTEN.value.replace("@prefix.public.t", "@prefix.public.accounts")
    needed = find_needed("s", WrittenWith(1, "public", "t", None, other), "s", "", of_one_table=False)
    assert needed.value_subject == "s-s.public.t.Envelope"


def test_tables_are_looked_up_one_after_the_other_and_a_new_one_waits_for_no_more_than_one(now, registry, registered):
    """K8: 1,000 tables took longer than the 30 s between two looks, and a new schema waited for all of them."""
    tables = tables_of(300)
    for each in tables:
        ask(registered, each)
    registry.requests, registered._look_at = 0, now[0]
    # when half a minute passes in turns of a tenth of a second
    most = 0
    for _ in range(300):
        now[0] += 0.1001
        before = registry.requests
        registered.turn(0)
        most = max(most, registry.requests - before)
    # then each was looked up once, in its own turn
    assert (registry.requests, most) == (2 * len(tables), 2)
    # and what a registry lost is noticed, whichever table it is
    registry.schemas = []
    for _ in range(300):
        now[0] += 0.1001
        registered.turn(0)
    for each in tables:
        with pytest.raises(NeedsOperator, match="has lost schema"):
            registered.ids(each)


def test_all_that_one_batch_needs_is_waited_for_no_longer_than_for_some(now, registered, monkeypatch):
    """Seventy new tables and a registry that answers in 0.3 s: their lane counted as one whose call hangs."""
    monkeypatch.setattr("bridge.routing.registered_schemas._WAIT_SECONDS", 0.5)

    def wait(_is_there, seconds):
        now[0] += max(0.0, min(seconds, 0.3))
        if seconds >= 0.3:
            registered.turn(0)

    monkeypatch.setattr(registered._changed, "wait_for", wait)
    batch, tables = BatchSchemas(registered), tables_of(70)
    for each in tables[:6]:
        assert batch.ids(each) == (1, 2)
    for each in tables[6:]:
        with pytest.raises(Retryable):
            batch.ids(each)
    assert now[0] < 1003
    # the next one waits for the rest
    assert BatchSchemas(registered).ids(tables[6]) == (1, 2)


def test_what_the_registry_refused_is_forgotten_once_nobody_asks_for_it(now, registry, registered):
    """It was registered again every two seconds for as long as the bridge ran."""
    registry.refused = NEEDED.schemas.value
    ask(registered)
    for _ in range(5):
        now[0] += 50
        with pytest.raises(Incompatible):
            registered.ids(NEEDED)
    registry.requests = 0
    registered.turn(0)
    assert registry.requests > 0
    now[0] += 61
    registry.requests = 0
    registered.turn(0)
    assert (registry.requests, registered._missing, registered._bytes, registered._incompatible) == (0, {}, 0, set())


def test_what_is_asked_for_in_vain_takes_neither_time_nor_room_from_new_schemas(now, registry, registered, monkeypatch):
    """One source used up the room of all; and what was new waited until all of it was refused once more."""
    refused, new = tables_of(50, "refused"), find_needed("s.public.new", WRITTEN, "s", "", of_one_table=True)
    monkeypatch.setattr("bridge.routing.registered_schemas._MOST_BYTES", 20 * refused[0].size)
    registry.error = NeedsOperator("no")
    for each in refused:
        now[0] += 0.1
        ask(registered, each)
    assert len(registered._missing) == 20
    asked = []

    def register(subject, _schema):
        asked.append(subject)
        if "refused" in subject:
            raise NeedsOperator("no")
        return len(asked)

    registry.error = None
    monkeypatch.setattr(registry, "register", register)
    ask(registered, new)
    assert registered.ids(new) == (1, 2)
    assert len(asked) == 2 + 10


def test_schemas_that_nobody_asks_for_are_forgotten_and_registered_again_with_the_same_ids(now, registry, registered):
    """What sources ever had stayed in memory while the bridge ran."""
    used, idle = tables_of(2)
    for each in (used, idle):
        ask(registered, each)
    ids = registered.ids(idle)
    for _ in range(7):
        now[0] += 3600
        registered.ids(used)
        for _ in (used, idle):
            registered._look_at = now[0]
            registered.turn(0)
    assert list(registered._known) == list(registered._order) == [used]
    ask(registered, idle)
    assert registered.ids(idle) == ids
