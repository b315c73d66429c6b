"""Random rows of random tables: what each kind of message says of a row is the same, and is the row."""

import base64

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.edge.postgres.messages import OID, UNCHANGED, Column, Log, delete, insert, relation, update

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
PRINTABLE = st.text("abc XYZ0123456789%é", max_size=300)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    "rest".__ne__
)


def same(strategy):
    """Values whose JSON is the text itself."""
    return strategy.map(lambda text: (text, text))


def instants(zone, shown):
    ordinary = st.datetimes().map(lambda moment: (moment.isoformat(" ") + zone, moment.isoformat("T") + shown))
    return ordinary | st.sampled_from(
        [
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
            (f"0044-03-15 00:00:00{zone} BC", f"0044-03-15 00:00:00{zone} BC"),
            (f"10000-01-01 00:00:00{zone}", f"10000-01-01T00:00:00{shown}"),
        ]
    )


def as_float(number):
    text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(number), repr(number))
    return text, text if text[-1].isalpha() else number


#: For each type, pairs of what the server sends and what the record holds.
PAIRS = {
    16: st.booleans().map(lambda value: ("ft"[value], value)),
    17: st.binary(max_size=50).map(lambda data: ("\\x" + data.hex(), base64.b64encode(data).decode())),
    20: st.integers(-(2**63), 2**63 - 1).map(lambda number: (str(number), number)),
    25: same(TEXT | PRINTABLE),
    701: st.floats().map(as_float),
    1082: same(st.dates().map(str) | st.sampled_from(["infinity", "0044-03-15 BC"])),
    1114: instants("", ""),
    1184: instants("+00", "Z"),
    1700: same(st.decimals(allow_nan=False, allow_infinity=False).map("{:f}".format) | st.just("NaN")),
    3802: same(st.just('{"a": [1, "b"]}')),
    50001: same(PRINTABLE),
}


@st.composite
def tables(draw):
    """Names and types of columns, the values that the server sends, and those that the record holds."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=6))
    oids = [draw(st.sampled_from(sorted(PAIRS))) for _ in names]
    pairs = [draw(st.just((None, None)) | PAIRS[oid]) for oid in oids]
    key = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    return names, oids, [sent for sent, _ in pairs], dict(zip(names, (shown for _, shown in pairs), strict=True)), key


def everywhere(names, oids, row):
    """A table of whole old rows and one column more, and its row in every kind of message that can hold it."""
    columns = [Column(name, oid, key=True) for name, oid in zip(names, oids, strict=True)]
    whole = (*row, "x")
    return [
        relation(*columns, Column("rest", key=True), identity="f"),
        insert(*whole),
        update(whole),
        update(whole, old=whole),
        update((*row, UNCHANGED), old=whole),
        delete(old=whole),
    ]


@given(tables())
@settings(deadline=None, max_examples=40)
def test_a_row_is_the_same_in_every_message_that_holds_it(table):
    names, oids, sent, shown, key = table
    log = Log(key_of=lambda _: key)
    log.transaction(*everywhere(names, oids, sent))
    for change in log.changes():
        assert change.key == ({name: shown[name] for name in key} if key else None)
        for row in (change.value["before"], change.value["after"]):
            assert row is None or row == shown | {"rest": "x"}
            assert row is None or list(row) == [*names, "rest"]


@given(tables(), st.data())
@settings(deadline=None, max_examples=40)
def test_what_the_log_did_not_carry_is_named_and_absent(table, data):
    names, oids, sent, shown, _ = table
    missing = data.draw(st.sets(st.sampled_from(names), min_size=1))
    columns = [Column(name, oid) for name, oid in zip(names, oids, strict=True)]
    row = [UNCHANGED if name in missing else value for name, value in zip(names, sent, strict=True)]
    log = Log()
    log.transaction(relation(*columns), insert(*sent), update(row))
    _, updated = log.changes()
    assert updated.value["unchanged"] == [name for name in names if name in missing]
    assert updated.value["after"] == {name: value for name, value in shown.items() if name not in missing}


@given(tables(), st.data())
@settings(deadline=None, max_examples=40)
def test_tables_do_not_mix(table, data):
    names, oids, sent, shown, _ = table
    log = Log()
    log.feed(*(relation(*map(Column, names, oids), oid=oid, table=f"t{oid}") for oid in (OID, OID + 1)))
    order = data.draw(st.lists(st.sampled_from([OID, OID + 1]), min_size=1, max_size=6))
    log.transaction(*(insert(*sent, oid=oid) for oid in order))
    changes = log.changes()
    assert [change.value["source"]["table"] for change in changes] == [f"t{oid}" for oid in order]
    assert all(change.value["after"] == shown for change in changes)
