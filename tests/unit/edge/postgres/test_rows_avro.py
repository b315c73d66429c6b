"""Records in Avro: what they hold is what those in JSON hold, whichever code made them."""

import base64
import json
import math

import pytest

from edge.postgres import rows_compiled
from headrace.batch import Batch
from headrace.errors import NeedsOperator
from tests.lake.avro_reading import read
from tests.unit.edge.postgres.messages import UNCHANGED, Column, Log, delete, insert, relation, truncate, update
from tests.unit.edge.postgres.test_rows_compiled import KINDS, ROWS

TABLE = relation(*(Column(name, oid, key=True) for name, oid in KINDS.items()), identity="f")
LONG = ("9" * 18, "x" * 70_000, "1.50", None, None, None, "1e300", "\\x" + "00" * 20_000, '{"a":1}')
CASES = {**ROWS, "only nulls": (1, *(None,) * 8), "long": LONG, "negative": (-70_000, "é" * 9_000, *(None,) * 7)}


def make_log(**settings) -> Log:
    return Log(format="avro", key_of=lambda _: ["id"], **settings)


def messages() -> list[bytes]:
    results = [TABLE]
    for row in CASES.values():
        results += 2 * [insert(*row), update(row), update(row, old=row), delete(old=row)]
        results.append(update((row[0], UNCHANGED, *row[2:]), key=(row[0], *(None,) * 8)))
    return [*results, truncate(16400)]


def run(monkeypatch, *, worth_making: int, **settings) -> list[Batch]:
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", worth_making)
    log = make_log(**settings)
    log.transaction(*messages())
    return log.batches()


def as_read(batch: Batch) -> list[tuple[object, object]]:
    """The keys and values of a batch in Avro, each by the schema that the batch names for it."""
    known = {each.number: each for each in batch.written}

    def one(data: bytes | None, *, of_key: bool):
        if data is None or data[0]:
            return data
        written = known[int.from_bytes(data[1:5], "big")]
        return read(data[5:], written.key if of_key else written.value)

    return [(one(k, of_key=True), one(v, of_key=False)) for k, v in zip(batch.keys, batch.values, strict=True)]


def test_the_functions_of_frequent_changes_and_the_code_for_any_make_the_same_bytes(monkeypatch):
    fast, exact = run(monkeypatch, worth_making=1), run(monkeypatch, worth_making=10_000)
    values = [value for batch in fast for value in batch.values]
    assert values == [value for batch in exact for value in batch.values]
    assert [key for batch in fast for key in batch.keys] == [key for batch in exact for key in batch.keys]
    assert sum(value[0] == 0 for value in values) == len(messages()) - 1


def test_they_hold_what_records_in_json_hold(monkeypatch):
    in_avro = [pair for batch in run(monkeypatch, worth_making=1) for pair in as_read(batch)]
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", 1)
    plain = Log(key_of=lambda _: ["id"])
    plain.transaction(*messages())
    in_json = [(key, value) for batch in plain.batches() for key, value in zip(batch.keys, batch.values, strict=True)]
    compared = 0
    for (key, value), (json_key, json_value) in zip(in_avro, in_json, strict=True):
        wanted = json.loads(json_value)
        if "op" not in wanted:
            continue
        assert key == (json_key and json.loads(json_key))
        assert _plain(value) == _with_nulls(wanted)
        compared += 1
    assert compared == len(messages()) - 1


def _plain(value: dict) -> dict:
    """What was read, with bytes and numbers as JSON has them, and `last` where it is there."""
    value["transaction"] |= {"last": value.pop("last")}
    for row in filter(None, (value["before"], value["after"])):
        row["blob"] = None if row["blob"] is None else row["blob"].hex()
        if row["ratio"] is not None:
            row["ratio"] = "NaN" if math.isnan(row["ratio"]) else row["ratio"]
    return value


def _with_nulls(value: dict) -> dict:
    """A record of JSON with everything that the schema has and the record has not."""
    rows = {}
    for name in ("before", "after"):
        row = value[name]
        rows[name] = row and {column: row.get(column) for column in KINDS}
        if row and row.get("blob") is not None:
            rows[name]["blob"] = base64.b64decode(row["blob"]).hex()
    nothing = dict.fromkeys(("ts_us", "ts_ns"))
    source = {**value["source"], **nothing, **dict.fromkeys(("sequence", "xmin", "origin", "origin_lsn"))}
    place = {"data_collection_order": None, "last": None, **value["transaction"]}
    return {
        "unchanged": None,
        "too_large": None,
        "former_key": None,
        **nothing,
        **value,
        **rows,
        "source": source,
        "transaction": place,
    }


def test_records_about_no_table_stay_json_and_a_tombstone_has_the_key_of_its_delete(monkeypatch):
    batches = run(monkeypatch, worth_making=1, transactions=True, tombstones=True)
    pairs = [pair for batch in batches for pair in zip(batch.keys, batch.values, strict=True)]
    statuses = [json.loads(value)["status"] for _, value in pairs if value is not None and b'"status"' in value[:20]]
    assert statuses == ["BEGIN", "END"]
    deleted = [number for number, (_, value) in enumerate(pairs) if value is None]
    assert len(deleted) == 2 * len(CASES)
    assert all(pairs[number][0] == pairs[number - 1][0] and pairs[number][0][0] == 0 for number in deleted)


def test_a_dead_letter_is_in_avro_too():
    log = make_log(largest_megabytes=1, on_too_large="dead-letter")
    log.transaction(TABLE, insert(7, "x" * (1 << 20), *(None,) * 7))
    (_, value) = as_read(log.batches()[0])[1]
    assert value["after"] == {"id": 7, **dict.fromkeys(list(KINDS)[1:])}
    assert value["unchanged"] == list(KINDS)[1:]
    assert value["too_large"]["bytes"] > 1 << 20


def test_an_altered_table_has_schemas_of_its_own_from_there_on():
    log = make_log()
    wider = relation(*(Column(name, oid, key=True) for name, oid in {**KINDS, "more": 25}.items()), identity="f")
    row = ROWS["ordinary"]
    log.transaction(TABLE, insert(*row), wider, insert(*row, "new"))
    (batch,) = log.batches()
    assert [each.number for each in batch.written] == [1, 2]
    after = [value["after"].get("more", "none") for _, value in as_read(batch) if isinstance(value, dict)]
    assert after == ["none", "new"]


def test_a_key_that_has_no_form_ends_the_edge_and_the_error_names_its_column():
    made = Log(format="avro", decimal="precise", key_of=lambda _: ["price"])
    with pytest.raises(NeedsOperator, match=r"public\.accounts\.price"):
        made.transaction(relation(Column("id", 20), Column("price", 1700, key=True)), insert(1, "NaN"))


@pytest.mark.parametrize(
    ("settings", "modifier", "text", "expected"),
    [
        ({"decimal": "precise"}, (10 << 16 | 2) + 4, "-1.50", (-150).to_bytes(2, "big", signed=True)),
        ({"decimal": "precise"}, -1, "1.5", {"scale": 1, "value": b"\x0f"}),
        ({"decimal": "double"}, -1, "NaN", "nan"),
        ({"decimal": "double"}, -1, "1.5", 1.5),
    ],
)
@pytest.mark.parametrize("worth_making", [0, 1000])
def test_debeziums_forms_of_decimals(monkeypatch, settings, modifier, text, expected, worth_making):
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", worth_making)
    made = Log(format="avro", key_of=lambda _: ["id"], **settings)
    rows = [insert(number, text) for number in range(3)]
    made.transaction(relation(Column("id", 20, key=True), Column("price", 1700, modifier=modifier)), *rows)
    prices = [value["after"]["price"] for _, value in as_read(made.batches()[0])[1:]]
    assert [str(price) if price != price else price for price in prices] == [expected] * 3  # noqa: PLR0124
