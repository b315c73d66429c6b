"""Functions are made for the kinds of change that come often; the records do not show when."""

import struct

import pytest

from edge.postgres import rows, rows_compiled
from edge.postgres.rows import PAD
from tests.unit.edge.postgres.accounts import FULL, primary_key
from tests.unit.edge.postgres.messages import Column, Log, delete, insert, relation, update


@pytest.fixture
def made(monkeypatch):
    """Let the third change of a kind have a function; return the names of those that were made, with their relations."""
    names = []
    compiled = rows_compiled._compiled

    def noted(table, name, *rest):
        names.append((name, len(table.names)))
        return compiled(table, name, *rest)

    monkeypatch.setattr(rows_compiled, "_compiled", noted)
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", 2)
    monkeypatch.setattr(rows, "module", None)
    return names


def test_a_kind_of_change_has_its_function_once_it_came_often(made):
    log = Log()
    log.transaction(
        FULL,
        *(insert(number, "a", None) for number in range(5)),
        update((0, "b", None), old=(0, "a", None)),
        delete(old=(0, "b", None)),
    )
    changes = log.changes()
    assert made == [("insert", 3)]
    assert [change.value["after"] for change in changes[:5]] == [
        {"id": number, "name": "a", "note": None} for number in range(5)
    ]
    first, *rest = (change.value for change in changes[:5])
    assert all(list(each) == list(first) for each in rest)
    assert [change.value["op"] for change in changes] == ["c"] * 5 + ["u", "d"]
    assert [change.position.ordinal for change in changes] == list(range(7))


def test_a_table_that_was_altered_begins_again(made):
    log = Log()
    wider = relation(*(Column(name) for name in ("id", "name", "note", "more")))
    log.transaction(
        FULL,
        *(insert(number, "a", None) for number in range(4)),
        wider,
        *(insert(number, "a", None, "x") for number in range(4, 6)),
    )
    assert made == [("insert", 3)]
    after = [change.value["after"] for change in log.changes()]
    assert [("more" in row) for row in after] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("settings", [{"tombstones": True}, {"transactions": True}], ids=["tombstones", "transactions"])
def test_what_stands_beside_changes_does_so_before_and_after(made, settings):
    log = Log(key_of=primary_key, **settings)
    log.transaction(FULL, *(delete(old=(number, "a", None)) for number in range(5)))
    kinds = [record.value and record.value.get("op", "status" in record.value) for record in log.records()]
    assert made == [("delete", 3)]
    expected = ["d", None] * 5 if "tombstones" in settings else [True, *["d"] * 5, True]
    assert [kind for kind in kinds if kind is not False] == expected


KINDS = {"id": 23, "text": 25, "price": 1700, "at": 1184, "day": 1114, "well": 16, "ratio": 701, "blob": 17, "doc": 114}
ROWS = {
    "ordinary": (
        1,
        "tnuN said",
        "1.50",
        "2026-01-31 09:15:00+00",
        "2026-01-31 09:15:00",
        "t",
        "0.5",
        "\\x00ff",
        '{"a":"t"}',
    ),
    "nulls": (1, None, None, None, "2026-01-31 09:15:00", None, None, None, None),
    "only nulls": (None,) * 9,
    "escapes": (1, 'é"\n', "1", "2026-01-31 09:15:00+00", None, "f", "-0", "\\x", "[]"),
    "special": (1, "", "NaN", "infinity", "0044-03-15 00:00:00 BC", "f", "NaN", "\\x", "null"),
}
AROUND = (b"1", b"2", b"00000000", b"3", b"1")


@pytest.fixture(scope="module", params=[0, 150], ids=["narrow", "wide"])
def functions(request):
    """The exact functions and the generated ones of a table with every kind of column, and `more` columns of text."""
    columns = [Column(name, oid, key=True) for name, oid in KINDS.items()]
    columns += [Column(f"more{number}", key=True) for number in range(request.param)]
    log = Log(key_of=lambda _: ["id"])
    log.transaction(relation(*columns, identity="f"))
    (table,) = log.decoder._tables.values()
    made = rows_compiled
    exact = (table.insert, table.update, table.update, table.delete)
    return [
        *zip(
            exact,
            (made.insert(table), made._update(table), made._whole_update(table), made._delete(table)),
            strict=True,
        )
    ]


def outcome(function, message):
    try:
        return function(message + PAD, *AROUND)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        return isinstance(error, Exception)


def headers(message, width):
    """Return where the bytes are that are no text: kinds, lengths, and what is between two tuples."""
    results, at = [], 8
    for _ in range(1 + (message[:1] == b"U" and message[5:6] == b"O")):
        for _ in range(width):
            size = 5 if message[at] == ord("t") else 1
            results += range(at, at + size)
            at += size + (int.from_bytes(message[at + 1 : at + 5], "big") if size == 5 else 0)
        results += range(at, min(at + 3, len(message)))
        at += 3
    return results


def kinds(functions, row):
    """Return each pair of functions with a message that it decodes."""
    more = len(functions[0][0].__self__.names) - len(KINDS)
    new, old = (*row, *(("x",) * more)), (*row[:1], *row[1:], *(("y",) * more))
    result = (insert(*new), update(new), update(new, old=old), delete(old=old))
    return [(*pair, message) for pair, message in zip(functions, result, strict=True)]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_generated_functions_give_what_the_exact_ones_give_whatever_header_is_damaged(functions, row):
    for exact, generated, message in kinds(functions, row):
        assert outcome(generated, message) == outcome(exact, message)
        for at in headers(message, len(exact.__self__.names))[:45] + headers(message, len(exact.__self__.names))[-9:]:
            for byte in {0, 1, *b"tnuN", 0xC0, 0xC4, 0xC5, 0xC6, 0xDA, 0xFF, message[at] ^ 1}:
                damaged = message[:at] + bytes([byte]) + message[at + 1 :]
                assert outcome(generated, damaged) == outcome(exact, damaged), (at, byte)
        for end in range(8, min(len(message), 200)):
            assert outcome(generated, message[:end]) == outcome(exact, message[:end])


@pytest.mark.parametrize("size", [0, 127, 128, 255, 256, 0x4E00, 0x7400, 0xFFFF, 0x10000, 0x740000])
def test_texts_of_every_length_are_taken_out_whole(functions, size):
    for exact, generated, message in kinds(functions, (7, "t" * size, *ROWS["ordinary"][2:])):
        assert outcome(generated, message) == outcome(exact, message)
