"""Records in Avro with Debezium's forms: read again, they are the records that the same settings give in JSON."""

import json
import re
from dataclasses import replace

import pytest

from edge.postgres import rows_avro, rows_compiled
from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.postgres.values import OIDS
from edge.records.column_policy import Policy
from edge.snapshot.ports import Chunk, DedupWindow
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import ColumnRule
from headrace.configuration.edge import Policy as Section
from headrace.errors import CorruptInput, NeedsOperator
from headrace.schemas.avro_json.envelope import Records
from tests.lake.avro_reading import read
from tests.unit.edge.postgres.messages import (
    END,
    EPOCH,
    UNCHANGED,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    origin,
    relation,
    truncate,
    type_name,
    update,
)
from tests.unit.edge.postgres.test_snapshot_reader import copied
from tests.unit.edge.snapshot.test_copies_after_alterations import snapshot_table

#: Columns with a modifier where the type has one, and values of each; null is among those of every column.
TYPES = {
    "i2 int2": ["-32768", "7"], "f4 float4": ["0.1", "NaN"], "f8 float8": ["-Infinity", "1e300"],
    "n numeric": ["12.50", "NaN"], f"n2 numeric {(12 << 16 | 2) + 4}": ["-0.01", "9999999999.99"], "money money": ["-$1,234.50"],
    "flag bool": ["t", "f"], "u uuid": ["c0ffee00-0000-4000-8000-000000000001"], "j jsonb": ['{"é": "\\n"}'],
    "by bytea": [r"\x00fb", r"\x"], "day date": ["2026-01-31", "infinity", "0044-03-15 BC"], "ti time": ["24:00:00"],
    "ti3 time 3": ["09:15:00.25"], "tz timetz": ["09:15:00.25+07"], "ts timestamp": ["2026-01-31 09:15:00.123456", "infinity"],
    "ts3 timestamp 3": ["1969-12-31 23:59:59.25"], "tstz timestamptz": ["2026-01-31 09:15:00.25+00", "-infinity"],
    "iv interval": ["1 mon -1 days +00:00:01.5", "infinity"], "bit1 bit 1": ["1", "0"], "bits bit 10": ["1000000001"],
    "vb varbit": ["", "101"], "p point": ["(1.5,-2)", "(NaN,Infinity)"], "q point": ["(0,0)"],
    "ints _int4": ["{1,NULL,-3}", "{}", "[0:1]={1,2}"], "shorts _int2": ["{1}"], "reals _float4": ["{0.1,NaN}"],
    "texts _text": ['{a,"b \\"c",NULL,""}'], "flags _bool": ["{t,f}"], "blobs _bytea": [r'{"\\x00ff",NULL}'],
    "numbers _numeric": ["{1.50,NaN,NULL}"], f"numbers2 _numeric {(6 << 16 | 2) + 4}": ["{1.25,-3.50}"],
    "days _date": ["{1970-01-02}"], "stamps _timestamptz": ['{"2026-01-31 09:00:00+00"}'],
    "uuids _uuid": ["{c0ffee00-0000-4000-8000-000000000001}"], "jsons _jsonb": [r'{"{\"a\": 1}"}'], "x xml": ["<a/>"],
    "box box": ["(3,4),(1,2)"], "tsv tsvector": ["'fat'"], "hs hstore": ['"a"=>"1", "b \\"c"=>NULL', ""],
    "lt ltree": ["top.science"], "moods mood": ["fine"],
}  # fmt: skip
#: Types with values of any length, which the log may leave out.
LONG = {"numeric", "jsonb", "bytea", "bit", "varbit", "xml", "tsvector", "hstore", "ltree"}
OF_LOG = {20001: "hstore", 20002: "ltree", 20003: "mood"}
SETTINGS = [
    {},
    {
        "decimal": "string",
        "time": "isostring",
        "binary": "hex",
        "interval": "string",
        "hstore": "map",
        "unavailable": "absent",
    },
    {"decimal": "double", "time": "connect", "binary": "base64-url-safe", "key_change": "update"},
    {"time": "nanoseconds", "envelope": "headrace", "tombstones": False},
    {"time": "adaptive_time_microseconds", "envelope": "headrace", "unavailable": "absent", "tombstones": False},
    {"time": "microseconds", "truncates": True, "decimal": "string"},
    {"time": "isostring", "binary": "hex", "hstore": "map", "interval": "string"},
]


def columns():
    oids = OIDS | {name: oid for oid, name in OF_LOG.items()}
    parts = [declared.split() for declared in TYPES]
    return [Column(name, oids[kind], modifier=int((*more, -1)[0])) for name, kind, *more in parts]


def messages(identity):
    """Changes of every kind, of a table whose key has an oid and a text."""
    number = max(map(len, TYPES.values()))
    rows = [[values[place % len(values)] for values in TYPES.values()] for place in range(number)]
    rows += [[None] * len(TYPES)]
    keys = [(place, f"é{place}") for place in range(len(rows))]
    full = identity == "f"
    result = [type_name(oid, name) for oid, name in OF_LOG.items()]
    described = [Column("id", OIDS["oid"], key=True), Column("part", key=True)]
    result += [relation(*described, *(it._replace(key=full) for it in columns()), identity=identity)]
    for key, row in zip(keys, rows, strict=True):
        whole, alone = (*key, *row), (*key, *(None,) * len(row))
        changed = (key[0] + 100, *whole[1:])
        old = {"old": whole} if full else {"key": alone}
        result += [insert(*whole)] * 2
        result += [update(whole, old=whole) if full else update(whole)] * 2
        result += [update((*key, *unchanged(row)), **old), update(changed, **old), delete(**old)]
    return [*result, truncate(16400)]


def unchanged(row):
    """A row of which the log leaves out what may be long."""
    kinds = [declared.split()[1] for declared in TYPES]
    return [UNCHANGED if kind in LONG or kind[0] == "_" else it for kind, it in zip(kinds, row, strict=True)]


def made(found, **settings):
    log = Log(profile="debezium", key_of=lambda _: ["id", "part"], **settings)
    log.transaction(*found)
    log.transaction(origin(), found[-2], commit_lsn=END + 0x10, end=END + 0x40)
    return log.batches()


def plain(batches):
    return [pair for batch in batches for pair in zip(batch.keys, batch.values, strict=True)]


def made_json(batches):
    """The keys and values of batches in Avro, made JSON by the lake's reader, by the schemas that each batch names."""
    results = []
    for batch in batches:
        keys, values = (
            Records({each.number: getattr(each, part) for each in batch.written}) for part in ("key", "value")
        )
        results += [(keys.key(key), values.value(value)) for key, value in plain([batch])]
    return results


def parsed(pairs, *, whole):
    """JSON's values; where the log's columns alone are in a record, an old row of nulls looks like a key without the others."""
    values = [tuple(part and json.loads(part) for part in pair) for pair in pairs]
    for _, value in values:
        if not whole and value and value.get("before"):
            value["before"] = {name: it for name, it in value["before"].items() if it is not None}
    return values


@pytest.mark.parametrize("identity", ["d", "f"])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda given: " ".join(map(str, given.values())) or "profile")
def test_a_record_in_avro_is_the_record_in_json(settings, identity):
    result = messages(identity)
    batches = made(result, format="avro", **settings)
    in_avro, in_json = made_json(batches), plain(made(result, **settings))
    assert len(in_avro) == len(in_json)
    whole = settings.get("unavailable") != "absent"
    for first, other in zip(parsed(in_avro, whole=whole), parsed(in_json, whole=whole), strict=True):
        assert first == other
    changes = sum(value is not None and value[0] == 0 for batch in batches for value in batch.values)
    assert changes == sum(value is not None and b'"op"' in value for _, value in in_json)


KEYS = {
    "numeric": "12.50", "bool": "t", "float8": "0.5", "bytea": r"\x00ff", "timestamptz": "2026-01-31 09:15:00.25+00",
    "timestamp": "2026-01-31 09:15:00", "uuid": "c0ffee00-0000-4000-8000-000000000001", "jsonb": '{"a": 1}', "bit": "101",
    "money": "$1.50", "point": "(1,2)", "_int4": "{1,NULL}", "hstore": '"a"=>NULL',
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_is_the_key_in_json(kind):
    oids = OIDS | {name: oid for oid, name in OF_LOG.items()}
    described = relation(Column("k", oids[kind], key=True), Column("other", oids[kind]))
    value = KEYS[kind]
    results = [
        type_name(20001, "hstore"), described, insert(value, value), insert(value, None),
        delete(key=(value, None)),
    ]  # fmt: skip
    logs = [Log(profile="debezium", format=each, key_of=lambda _: ["k"], hstore="map") for each in ("avro", "json")]
    for log in logs:
        log.transaction(*results)
    in_avro, in_json = made_json(logs[0].batches()), plain(logs[1].batches())
    assert parsed(in_avro, whole=True) == parsed(in_json, whole=True)
    assert len(in_avro) == 5


@pytest.mark.parametrize("unavailable", ["placeholder", "absent"])
def test_a_change_that_is_too_large_has_the_key_alone(unavailable):
    described = relation(Column("id", 20, key=True), Column("part", key=True), *columns())
    types = [type_name(oid, name) for oid, name in OF_LOG.items()]
    large = ["x" * (1 << 20) if kind == "xml" else None for kind in (declared.split()[1] for declared in TYPES)]
    results = [*types, described, insert(7, "p", *large), update((8, "p", *large), key=(7, "p", *(None,) * len(large)))]
    settings = {
        "largest_megabytes": 1,
        "on_too_large": "dead-letter",
        "unavailable": unavailable,
        "key_change": "update",
    }
    in_avro, in_json = made_json(made(results, format="avro", **settings)), plain(made(results, **settings))
    assert parsed(in_avro, whole=True) == parsed(in_json, whole=True)
    assert sum(b'"too_large"' in value for _, value in in_json) == 3


def test_the_order_of_fields_is_that_of_json():
    result = messages("d")
    for (_, one), (_, other) in zip(made_json(made(result, format="avro")), plain(made(result)), strict=True):
        assert [one and list(_names(json.loads(one)))] == [other and list(_names(json.loads(other)))]


def _names(value):
    for name, inner in value.items():
        yield name
        if isinstance(inner, dict):
            yield from _names(inner)


def test_a_consumer_has_values_of_avros_own_types():
    (batch,) = made(messages("d"), format="avro")[:1]
    (written,) = batch.written
    rows = [read(value[5:], written.value) for value in batch.values if value and value[0] == 0]
    after = rows[0]["after"]
    assert (after["by"], after["bit1"], after["bits"], after["vb"]) == (b"\x00\xfb", True, b"\x01\x02", b"")
    assert (after["n"], after["n2"], after["money"]) == ({"scale": 1, "value": b"\x7d"}, b"\xff", b"\xfe\x1d\xc6")
    assert (after["ints"], after["blobs"], after["flags"]) == ([1, None, -3], [b"\x00\xff", None], [True, False])
    assert after["numbers"] == [{"scale": 1, "value": b"\x0f"}, None, None]
    assert (after["iv"], after["tz"]) == (2_543_401_500_000, "02:15:00.25Z")
    assert {name: after["p"][name] for name in ("x", "y", "srid")} == {"x": 1.5, "y": -2.0, "srid": None}
    assert len(after["p"]["wkb"]) == 21
    unchanged = next(row["after"] for row in rows if row["unchanged"])
    assert unchanged["by"] == unchanged["x"].encode() == b"__debezium_unavailable_value"
    assert unchanged["texts"] == ["__debezium_unavailable_value"]
    assert (unchanged["ints"], unchanged["n"]) == (list(b"__debezium_unavailable_value"), None)


def test_a_record_that_ends_early_is_refused_without_its_values():
    (batch,) = made(messages("f"), format="avro", hstore="map")[:1]
    values = Records({each.number: each.value for each in batch.written})
    value = next(value for value in batch.values if value and value[0] == 0)
    for end in range(5, len(value)):
        with pytest.raises(ValueError, match=r"^[a-z ]+$"):
            values.value(value[:end])


def test_an_hstore_is_a_map_where_it_is_asked_for():
    (batch,) = made(messages("d"), format="avro", hstore="map")[:1]
    value = next(value for value in batch.values if value[0] == 0)
    assert read(value[5:], batch.written[0].value)["after"]["hs"] == {"a": "1", 'b "c': None}


def copied_rows(monkeypatch, window, *, is_exact, **settings):
    """Return the batches of a copy of rows of every type; `is_exact`: by the code for any row."""
    number = max(map(len, TYPES.values()))
    rows = [[values[place % len(values)] for values in TYPES.values()] for place in range(number)]
    rows += [[None] * len(TYPES), [None if place % 2 else it for place, it in enumerate(rows[0])]]
    types = [type_name(oid, name) for oid, name in OF_LOG.items()]
    announced = relation(Column("id", OIDS["oid"], key=True), Column("part", key=True), *columns())
    if is_exact:
        for module in (rows_compiled, rows_avro):
            monkeypatch.setattr(module, "copied", lambda _table, exact, *_: exact)
        monkeypatch.setattr("edge.postgres.rows.plan_insert", lambda _table: None)
        monkeypatch.setattr(rows_compiled, "insert", lambda table: table.insert)
    log = Log(kind=SnapshotDecoder, key_of=lambda _: ["id", "part"], **settings)
    table = replace(snapshot_table(announced), count=2 + len(TYPES), key=(0, 1), messages=(*types, announced))
    log.feed(begin())
    chunk = [copied((str(place), f"é{place}", *row)) for place, row in enumerate(rows)]
    put = log.decoder.put(Chunk(table=table, rows=chunk, size=1, last=None, end=True), window)
    log.feed(commit())
    return put, log.batches()


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("settings", [{}, *({"profile": "debezium", **it} for it in SETTINGS)], ids=range(8))
def test_the_functions_for_copied_rows_and_the_code_for_any_make_the_same_bytes(monkeypatch, settings, form):
    """Also of which rows the log has changes: their keys are in the records' form."""
    window = DedupWindow()
    window.open()
    window.change(b'{"id":1,"part":"\xc3\xa91"}')
    window.change(b'{"id":2,"part":"\xc3\xa92"}', whole=False)
    fast, exact = (
        copied_rows(monkeypatch, window, is_exact=is_exact, format=form, **settings) for is_exact in (False, True)
    )
    assert plain(fast[1]) == plain(exact[1])
    assert fast[0] == exact[0]
    assert fast[0].again == [["2", "é2"]]
    assert [b"\xc3\xa91" in (key or b"") for key, _ in plain(fast[1])].count(True) == 0


#: What is handed to the code for any row: an escape, a number or a time that is none, and a date before year 1.
UNUSUAL = re.compile(rb"\\\\[^N]|NaN|nfinity|BC")


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize(
    "settings", [{}, *({"profile": "debezium", **it, "envelope": "headrace"} for it in SETTINGS[1:3])]
)
@pytest.mark.parametrize("action", [None, "mask"])
def test_ordinary_rows_of_every_type_are_copied_by_the_functions_alone(monkeypatch, settings, form, action):
    """Otherwise a test of both ways compares the code for any row with itself."""
    handed_on = []

    def counted(real):
        def make(table, exact, *rest):
            def noted(row, *around):
                handed_on.append(row)
                return exact(row, *around)

            return real(table, noted, *rest)

        return make

    rules = [ColumnRule(columns=["*.*.other"], action=action)] if action else []
    oids = OIDS | {name: oid for oid, name in OF_LOG.items()}
    types = [type_name(oid, name) for oid, name in OF_LOG.items()]
    for (declared, found), column in zip(TYPES.items(), columns(), strict=True):
        kind = declared.split()[1]
        announced = relation(Column("id", OIDS["int4"], key=True), column._replace(oid=oids[kind]), Column("other"))
        table = replace(snapshot_table(announced), count=3, messages=(*types, announced))
        rows = [copied((str(number), it, "a")) for number, it in enumerate([found[0], *found, None])]
        written = []
        for wrap in (lambda _: lambda _table, exact, *_: exact, counted):
            with monkeypatch.context() as patch:
                for module in (rows_compiled, rows_avro):
                    patch.setattr(module, "copied", wrap(module.copied))
                log = Log(
                    kind=SnapshotDecoder,
                    key_of=lambda _: ["id"],
                    format=form,
                    policy=Policy(Section(columns=rules)),
                    **settings,
                )
                log.feed(begin())
                log.decoder.put(Chunk(table=table, rows=rows, size=1, last=None, end=True), DedupWindow())
                log.feed(commit())
                written.append(plain(log.batches()))
        assert written[0] == written[1], declared
    assert [row for row in handed_on if not UNUSUAL.search(row)] == []


@pytest.mark.parametrize("envelope", ["headrace", "debezium"])
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("_int4", "{1}", "{{1,2},{3,4}}"),
        ("_text", '{"[1]"}', '{{"secret"}}'),
        ("_odd", "{1}", "secret"),
        ("interval", "1 day", "178000000 years"),
    ],
)
def test_a_value_without_a_form_in_avro_is_a_dead_letter_and_the_source_goes_on(
    tmp_path, caplog, kind, good, bad, envelope
):
    """M2: it concerned all that came behind it, not its row."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(EPOCH, 0)
    announced = type_name(20009, "_odd"), relation(Column("id", 20, key=True), Column("c", OIDS.get(kind, 20009)))
    settings = {"profile": "debezium", "envelope": envelope, "format": "avro", "key_of": lambda _: ["id"]}
    log = Log(history=history, **settings)
    log.transaction(*announced, *(insert(number, good) for number in range(3)), insert(3, bad), insert(4, good))
    (batch,) = log.batches()

    rows = [read(value[5:], batch.written[0].value) for value in batch.values if value[0] == 0]
    assert [(row["after"]["id"], row["unchanged"]) for row in rows] == [
        (number, ["c"] if number == 3 else None) for number in range(5)
    ]
    assert all((row["after"]["c"] is None) == (row["after"]["id"] == 3) for row in rows)
    assert "column c" in history.warnings["public.accounts"]
    assert "secret" not in caplog.text
    with pytest.raises((NeedsOperator, CorruptInput)):
        Log(history=history, on_too_large="stop", **settings).transaction(*announced, insert(3, bad))


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize(
    ("time", "bad"),
    [
        ("nanoseconds", "2300-01-01 00:00:00"),
        ("microseconds", "294276-12-31 23:59:59"),
        ("adaptive", "294276-12-31 23:59:59"),
    ],
)
@pytest.mark.parametrize("kind", ["timestamp", "_timestamp"])
def test_a_time_beyond_64_bits_is_a_dead_letter_alone_and_in_an_array_in_the_log_and_in_a_copy(
    tmp_path, kind, time, bad, form
):
    """M2: in an array it stopped the source in Avro, and in JSON it was a number that no consumer takes as a long."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(EPOCH, 0)
    wrap = '{{"{}"}}'.format if kind[0] == "_" else str
    good, bad = wrap("2026-01-01 00:00:00"), wrap(bad)
    announced = relation(Column("id", 20, key=True), Column("c", OIDS[kind]))
    settings = {"profile": "debezium", "time": time, "format": form, "key_of": lambda _: ["id"]}
    log = Log(kind=SnapshotDecoder, history=history, **settings)
    log.feed(begin(), announced, *(insert(number, good) for number in range(3)), insert(3, bad), insert(4, good))
    table = replace(snapshot_table(announced), count=2)
    rows = [copied((str(number), bad if number == 6 else good)) for number in range(5, 8)]
    log.decoder.put(Chunk(table=table, rows=rows, size=1, last=None, end=True), DedupWindow())
    log.feed(commit())
    batches = log.batches()

    pairs = made_json(batches) if form == "avro" else plain(batches)
    after = [value["after"] for _, value in parsed(pairs, whole=False) if value and value.get("after")]
    assert [(row["id"], row.get("c") is None) for row in after] == [(number, number in {3, 6}) for number in range(8)]
    assert "column c" in history.warnings["public.accounts"]
    with pytest.raises((NeedsOperator, CorruptInput)):
        Log(history=history, on_too_large="stop", **settings).transaction(announced, insert(3, bad))


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("kind", ["timestamp", "_timestamp"])
def test_of_a_time_beyond_64_bits_in_a_key_the_change_is_left_out(tmp_path, kind, form):
    """M2."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(EPOCH, 0)
    wrap = '{{"{}"}}'.format if kind[0] == "_" else str
    log = Log(history=history, profile="debezium", time="microseconds", format=form, key_of=lambda _: ["id"])
    described = relation(Column("id", OIDS[kind], key=True))
    log.transaction(described, *(insert(wrap(it)) for it in ("1970-01-01 00:00:01", "294276-12-31 23:59:59")))
    batches = log.batches()

    pairs = parsed(made_json(batches) if form == "avro" else plain(batches), whole=True)
    second = [1_000_000] if kind[0] == "_" else 1_000_000
    assert [value["after"] for _, value in pairs if value and value.get("after")] == [{"id": second}]
    assert "column id" in history.warnings["public.accounts"]


def test_of_a_key_without_a_form_in_avro_the_change_is_left_out(tmp_path):
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(EPOCH, 0)
    log = Log(history=history, profile="debezium", format="avro", key_of=lambda _: ["id"])
    log.transaction(relation(Column("id", OIDS["_int4"], key=True)), insert("{1}"), insert("{{1}}"), insert("{2}"))
    (batch,) = log.batches()

    rows = [read(value[5:], batch.written[0].value) for value in batch.values if value[0] == 0]
    assert [row["after"]["id"] for row in rows] == [[1], [2]]
    assert "column id" in history.warnings["public.accounts"]
