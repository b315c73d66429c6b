"""What is compiled makes the bytes of the exact functions, or raises what they raise."""

import gc
import itertools
import random
import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.postgres import rows, rows_compiled
from edge.postgres.rows import PAD
from tests.unit.edge.postgres.messages import UNCHANGED, Column, Log, delete, insert, relation, update
from tests.unit.edge.postgres.row_cases import AROUND, NO_TEXTS, TEXTS, TYPES, a_copy, cases, outcome

MODULE = rows.module
if MODULE is None:
    pytest.skip("this machine has no C compiler", allow_module_level=True)


@pytest.fixture(autouse=True, scope="module")
def way():
    """In place of the ways that other tests go one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "module", MODULE)
        patch.setattr(rows_compiled, "WORTH_MAKING", 256)
        yield


def a_table(*columns, **options):
    log = Log(key_of=lambda _: ["id"], **options)
    log.transaction(relation(Column("id", 20, key=True), *columns))
    (table,) = log.decoder._tables.values()
    return table


@pytest.fixture(scope="module")
def of_text():
    """The exact and the compiled function for inserts of a table with one text."""
    table = a_table(Column("note"))
    return table.insert, rows.plan_insert(table)


@given(st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_random_changes_of_random_tables(chance):
    for exact, in_c, message in cases(chance):
        assert outcome(in_c, message) == outcome(exact, message)


@given(st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_random_rows_that_are_copied(chance):
    if (copy := a_copy(chance)) is None:
        return
    made = copy.made_in_c({})
    for number, both in made.items():
        assert both == copy.made_exactly(number)
    # Those that do not fit, are larger than a record may be, or are of a changed key, are left to Python.
    key, _ = made.get(0, (None, b""))
    if made:
        largest = max(len(value) for _, value in made.values())
        assert copy.made_in_c({}, free=largest - 1).keys() < made.keys()
        assert copy.made_in_c({}, free=-1) == copy.made_in_c({}, largest=-1) == {}
    if key is not None:
        assert copy.made_in_c({key: key}) == {it: both for it, both in made.items() if both[0] != key}


def test_ordinary_rows_are_copied_in_c():
    copies = [(copy, copy.made_in_c({})) for seed in range(80) if (copy := a_copy(random.Random(seed))) is not None]
    assert sum(len(each) for _, each in copies) > sum(len(copy.rows) for copy, _ in copies) / 2
    assert any(b"\\" in copy.rows[number] for copy, each in copies for number in each)


def test_rows_are_copied_by_a_plan_of_one_tuple():
    table = a_table(Column("note"))
    update = rows.plan_whole_update(table).__self__
    for plan, start in ((update, 0), (rows.plan_insert(table).__self__, -1)):
        with pytest.raises(ValueError, match="copied by plans"):
            plan.copy([], start, 1, 1, {}, [], [], 0, b"", b"", b"")


@pytest.mark.parametrize("oid", TYPES)
def test_every_text_in_a_column_of_every_type(oid):
    table = a_table(Column("c", oid))
    in_c = rows.plan_insert(table)
    for text in [*(text.encode() for text in TEXTS), *NO_TEXTS, None, UNCHANGED]:
        assert outcome(in_c, insert(1, text)) == outcome(table.insert, insert(1, text)), text


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
@settings(max_examples=1000)
def test_texts(of_text, text):
    exact, in_c = of_text
    assert outcome(in_c, insert(1, text)) == outcome(exact, insert(1, text))


def test_ordinary_changes_do_not_pass_through_python():
    columns = [Column(f"c{oid}", oid, key=True) for oid in (20, 700, 16, 17, 1114, 1184, 25, 3802, 1700)]
    row = (7, "1.5", "t", "\\x00ff", "2026-01-31 09:15:00", "2026-01-31 09:15:00.5+00", 'é"', "{}", "1.50")
    log = Log(key_of=lambda _: ["c20"])
    log.transaction(relation(*columns, identity="f"))
    (table,) = log.decoder._tables.values()
    after = (
        b'{"c20":7,"c700":1.5,"c16":true,"c17":"AP8=","c1114":"2026-01-31T09:15:00","c1184":"2026-01-31T09:15:00.5Z",'
        b'"c25":"\xc3\xa9\\"","c3802":"{}","c1700":"1.50"}'
    )
    for kind, message in (("insert", insert(7, *row[1:])), ("update", update(row)), ("delete", delete(old=row))):
        expected = outcome(getattr(table, kind), message)
        setattr(table, kind, None)
        assert outcome(getattr(rows, f"plan_{kind}")(table), message) == expected
        assert expected[0] == b'{"c20":7}'
        assert after in expected[1]


def test_the_first_change_of_a_table_is_decoded_in_c_already():
    changes, prefix = rows_compiled.Changes(a_table(Column("note"))), insert(1, "a")[:8]
    assert isinstance(changes[prefix].__self__, MODULE.Plan)
    # A function that makes Avro is made later, as without it.
    assert prefix not in changes


def test_every_border_of_utf_8_and_every_escape(of_text):
    exact, in_c = of_text
    edges = [*bytes.fromhex("00 1F 22 5C 7F 80 8F 90 9F A0 BF C0 C1 C2 DF E0 E1 EC ED EE")]
    edges += [0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    texts = [bytes(each) for size in (1, 2) for each in itertools.product(range(0, 256, size), repeat=size)]
    texts += [bytes(each) for each in itertools.product(edges, repeat=3)]
    texts += [bytes([first, *rest]) for first in range(0xEF, 0xF6) for rest in itertools.product(edges[4:13], repeat=3)]
    for text in texts:
        # Also where eight bytes are looked at together.
        message = insert(1, text) if len(text) % 2 else insert(1, b"1234567" + text + b"12345678")
        assert outcome(in_c, message) == outcome(exact, message), text


def test_a_message_cut_at_every_place(of_text):
    exact, in_c = of_text
    message = insert(1, "four")
    for end in range(8, len(message)):
        cut = message[:end]
        assert outcome(in_c, cut) == outcome(exact, cut)
        assert isinstance(outcome(in_c, cut)[0], type)


def test_what_is_no_message_goes_to_the_exact_function(of_text):
    exact, in_c = of_text
    for arguments in ((), (b"",), (b"I" * 11, *AROUND), (None, *AROUND), (insert(1, "a") + PAD, "text", *AROUND[1:])):
        with pytest.raises(Exception) as expected:
            exact(*arguments)
        with pytest.raises(expected.type):
            in_c(*arguments)


def test_a_column_with_a_form_of_its_own_leaves_the_table_to_python():
    assert rows.plan_insert(a_table(Column("at", 1114), time="connect")) is None
    assert rows.plan_insert(a_table(Column("at", 1114))) is not None


def test_plans_that_are_none_are_refused():
    good = [b"ne", (b'"a":', b'"b":'), (0,), (b"{", b"},", b",", b",", b"}}"), print]
    MODULE.Plan(*good)
    wrong = [
        (0, b"n"),
        (0, b""),
        (1, (b'"a":', "b")),
        (2, (2,)),
        (2, (-1,)),
        (2, ("a",)),
        (2, (2**70,)),
        (3, (b"",) * 4),
    ]
    wrong += [(3, (b"",) * 7), (3, (b"", 1, b"", b"", b"")), (0, b"-e"), (1, [b"", b""])]
    for at, part in wrong:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            MODULE.Plan(*good[:at], part, *good[at + 1 :])
    with pytest.raises(TypeError):
        MODULE.Plan(*good, exact=print)


def test_nothing_is_left_of_a_table_that_is_gone():
    table = a_table(Column("note"))
    in_c = table.changes = rows.plan_insert(table)
    gone, message = weakref.ref(table), insert(1, "ok") + PAD
    unusual = insert(1, None).replace(b"n", b"x") + PAD
    around = [bytes(bytearray(each)) for each in AROUND]
    before = [sys.getrefcount(each) for each in (message, unusual, *around)]
    for _ in range(100):
        in_c(message, *around)
        assert outcome(in_c, unusual[: -len(PAD)], around) == (
            ValueError,
            "a column is neither text, null nor unchanged",
        )
    gc.collect()
    assert [sys.getrefcount(each) for each in (message, unusual, *around)] == before
    del table, in_c
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("size", [255, 256, 65_535, 1 << 20])
def test_large_texts(of_text, size):
    exact, in_c = of_text
    for text in ("x" * size, "ü" * size, '"' * size):
        assert outcome(in_c, insert(1, text)) == outcome(exact, insert(1, text))


def test_a_seed_has_all_outcomes():
    """Random cases are of use only where many are decoded in C, and many are not."""
    results = [type(outcome(case.in_c, case.message)[0]) for seed in range(60) for case in cases(random.Random(seed))]
    assert results.count(type) > 20
    assert len(results) - results.count(type) > 60
