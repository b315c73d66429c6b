"""Tables whose rows change in no log are found, over restarts too, and reported (L7, T14)."""

import json
import time

import pytest

from edge.records.alterations import TableDescription
from edge.records.column_policy import Policy as ColumnPolicy
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import ColumnRule, Policy
from headrace.errors import NotConnected
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.test_decoder import ANA, ID, NAME, mysql_gtid, query, rows, table_map, xid
from tests.unit.edge.postgres.messages import (
    EPOCH,
    INT8,
    Column,
    Log,
    insert,
    relation,
    type_name,
)
from tests.unit.edge.postgres.messages import NUMERIC as NUMBER
from tests.unit.edge.snapshot.histories import (
    BEFORE,
    KEY,
    NOTE,
    SOURCE,
    catalog,
    opened,
    place,
    schemas,
    session,
    waiting,
)

ALTERED = [
    (relation(KEY, Column("memo")), catalog(id=1, memo=2), ["column note was renamed to memo"]),
    (
        relation(KEY, NOTE, Column("more")),
        catalog("more", id=1, note=2, more=3),
        ["column more was added with a default"],
    ),
    (relation(KEY, NOTE, Column("more")), catalog(id=1, note=2, more=3), []),
    (relation(KEY), catalog(id=1), []),
    (relation(KEY, Column("other")), catalog(id=1, other=3), []),
    (relation(KEY, Column("note", NUMBER)), catalog(id=1, note=2), ["the type of column note was changed"]),
    (relation(KEY._replace(oid=INT8), NOTE), catalog(id=1, note=2), []),
    (relation(KEY, NOTE, table="clients"), catalog(id=1, note=2), ["the table was called public.accounts"]),
    (relation(KEY, NOTE, schema="other"), catalog(id=1, note=2), ["the table was called public.accounts"]),
    (relation(KEY, NOTE, oid=7), catalog(id=1, note=2), ["another table is called public.accounts now"]),
    (relation(KEY, NOTE, Column("more")), lambda _: None, None),
    (relation(KEY, Column("memo")), lambda _: None, ["column note was renamed to memo"]),
]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(("after", "catalog_of", "reasons"), ALTERED)
def test_alteration_of_a_postgresql_table_is_in_its_schema_record_once_and_needs_a_copy(
    tmp_path, after, catalog_of, reasons, restarts
):
    known = catalog(id=1, note=2)
    oid = int.from_bytes(after[1:5], "big")
    old = (1000, BEFORE, insert(1, "a"))
    new = (
        2000,
        after,
        insert(*[1] * (int.from_bytes(after[-2:], "big") and after.count(b"\xff\xff\xff\xff")), oid=oid),
    )
    more = (3000, new[2])
    if restarts:
        session(tmp_path, old, catalog_of=known)
        found = session(tmp_path, new, more, catalog_of=catalog_of)
    else:
        answers = [known, catalog_of]

        def answer(relation):
            return answers.pop(0)(relation)

        found = session(tmp_path, old, new, more, catalog_of=answer)[2:]

    assert schemas(found) == [(place(2000), reasons)]
    warnings = TableHistory(tmp_path, SOURCE).warnings
    assert len(warnings) == bool(reasons)
    assert all(reason in text for text in warnings.values() for reason in reasons)
    # A session that reads the same again says the same, in the same place; one that goes on says nothing more.
    assert schemas(session(tmp_path, new, more, catalog_of=known)) == [(place(2000), reasons)]
    assert schemas(session(tmp_path, (3000, after, new[2]), catalog_of=known)) == [(place(3000), None)]


def test_old_log_that_is_read_again_is_no_alteration(tmp_path):
    known, altered = catalog(id=1, note=2), catalog(id=1, memo=2)
    old, new = (1000, BEFORE, insert(1, "a")), (2000, relation(KEY, Column("memo")), insert(1, "a"))
    session(tmp_path, old, catalog_of=known)
    session(tmp_path, new, catalog_of=altered)

    again = session(tmp_path, old, new, catalog_of=altered)

    assert schemas(again) == [(place(1000), None), (place(2000), ["column note was renamed to memo"])]
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ["public.accounts"]


def test_warning_about_a_table_ends_with_the_table(tmp_path):
    session(tmp_path, (1000, BEFORE, insert(1, "a")), catalog_of=catalog(id=1, note=2))
    session(tmp_path, (2000, relation(KEY, Column("memo")), insert(1, "a")), catalog_of=catalog(id=1, memo=2))
    warned = {}
    history = TableHistory(tmp_path, SOURCE, warned=warned)

    history.forget_dropped({"16400": "public.accounts"})
    assert list(warned) == ["copy of public.accounts"]
    history.forget_dropped({"7": "public.others"})
    assert warned == TableHistory(tmp_path, SOURCE).warnings == {}


def test_of_a_table_that_was_dropped_nothing_but_its_name_is_kept(tmp_path):
    """L7: consumers have rows of it still, so another table of that name needs a copy; it is not another one itself."""
    known, old = catalog(id=1, note=2), (1000, BEFORE, insert(1, "a"))
    session(tmp_path, old, catalog_of=known)
    history = TableHistory(tmp_path, SOURCE)
    history.forget_dropped({"7": "public.others"})
    history.close()

    file = json.loads((tmp_path / "tables.json").read_bytes())
    assert (file["tables"], file["dropped"]) == ({}, {"16400": "public.accounts"})
    assert schemas(session(tmp_path, old, catalog_of=known)) == [(place(1000), None)]
    new = (2000, relation(KEY, NOTE, oid=7), insert(1, "a", oid=7))
    assert schemas(session(tmp_path, new, catalog_of=known)) == [
        (place(2000), ["another table is called public.accounts now"])
    ]


def test_names_of_dropped_tables_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("edge.snapshot.table_history._MOST_DROPPED", 2)
    for number in range(5):
        name = f"t{number}"
        session(tmp_path, (1000, relation(KEY, NOTE, table=name, oid=number + 1), insert(1, "a", oid=number + 1)))
        history = TableHistory(tmp_path, SOURCE)
        history.forget_dropped({})
        history.close()

    assert list(json.loads((tmp_path / "tables.json").read_bytes())["dropped"].values()) == ["public.t3", "public.t4"]


def test_server_that_is_down_while_a_table_is_described_leaves_no_trace(tmp_path):
    history = opened(tmp_path)

    def down(_relation):
        raise NotConnected("down")

    with pytest.raises(NotConnected):
        Log(history=history, catalog_of=down).transaction(BEFORE, insert(1, "a"), commit_lsn=1000, end=1010)
    # then the next session starts as if nothing had been announced
    history.begin(EPOCH + 1, 0)
    history.labels({"mood": {"1": "sad"}})
    history.labels({"mood": {"1": "blue"}})
    log = Log(history=history, catalog_of=catalog(id=1, note=2))
    log.transaction(BEFORE, insert(1, "a"), commit_lsn=1000, end=1010)
    assert schemas([it.value for it in log.records()]) == [(place(1000), None)]


def test_table_that_was_renamed_needs_its_copy_under_its_present_name_alone(tmp_path):
    """A copy of the former name cannot be made any more."""
    known = catalog(id=1, note=2, memo=2)
    session(tmp_path, (1000, BEFORE, insert(1, "a")), catalog_of=known)
    session(tmp_path, (2000, relation(KEY, Column("memo")), insert(1, "a")), catalog_of=catalog(id=1, memo=2))
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ["public.accounts"]

    renamed = relation(KEY, Column("memo"), table="clients")
    session(tmp_path, (3000, renamed, insert(1, "a")), catalog_of=catalog(id=1, memo=2))

    assert list(TableHistory(tmp_path, SOURCE).warnings) == ["public.clients"]


def test_renamed_label_of_an_enum_marks_the_tables_that_have_it(tmp_path):
    old = relation(KEY, Column("mood", 90000))
    session(
        tmp_path,
        (1000, type_name(90000, "mood"), old, insert(1, "sad")),
        (1500, BEFORE.replace(b"accounts", b"others")),
    )
    history = opened(tmp_path)
    history.labels({"mood": {"1": "sad", "2": "well"}})
    history.labels({"mood": {"1": "sad", "2": "well", "3": "new"}})
    assert history.warnings == {}
    history.close()
    # when a label has another name, and then a change comes
    history = opened(tmp_path, copies=True)
    history.labels({"mood": {"1": "unhappy", "2": "well", "3": "new"}})
    assert "a label of type mood was renamed" in history.warnings["public.accounts"]
    assert waiting(tmp_path) == [["public.accounts"]]
    result = session(tmp_path, (2000, type_name(90000, "mood"), old, insert(2, "well")), (2500, insert(3, "well")))
    assert schemas(result) == [(place(2000), ["a label of type mood was renamed"])]


@pytest.mark.parametrize(
    ("columns", "images", "filled", "reasons"),
    [
        ((ID, NAME._replace(name="called")), ANA, {}, ["column name was renamed to called"]),
        ((ID, NAME), ANA, {}, "same"),
    ],
)
def test_alteration_of_a_mysql_table_is_in_its_schema_record(tmp_path, columns, images, filled, reasons):
    def run(given, at):
        history = TableHistory(tmp_path, SOURCE)
        history.begin(1, 0)
        decoder, batcher = events.make_decoder(history=history, filled=filled)
        body = [query("BEGIN", at + 50), table_map(*given), rows(30, 2, images), xid(at + 300)]
        events.feed(decoder, events.rotate(), mysql_gtid(at, at), *body)
        history.close()
        return [value for value in map(json.loads, batcher.values) if "tableChanges" in value]

    run((ID, NAME), 500)
    (schema,) = run(columns, 1500)
    assert schema.get("rewritten", "same") == reasons
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ([] if reasons == "same" else ["bank.accounts"])


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_a_column_that_the_policy_left_out_needs_a_copy_once_it_is_not(tmp_path, engine):
    def run(at, policy):
        if engine == "postgresql":
            return session(
                tmp_path, (at, BEFORE, insert(1, "a")), catalog_of=catalog(id=1, note=2), policy=ColumnPolicy(policy)
            )
        history = TableHistory(tmp_path, SOURCE)
        history.begin(1, 0)
        decoder, batcher = events.make_decoder(history=history, filled={"id": False, "name": False}, policy=policy)
        body = [query("BEGIN", at + 50), table_map(ID, NAME), rows(30, 2, ANA), xid(at + 300)]
        events.feed(decoder, events.rotate(), mysql_gtid(at, at), *body)
        history.close()
        return [json.loads(value) for value in batcher.values]

    name = "note" if engine == "postgresql" else "name"
    table = "public.accounts" if engine == "postgresql" else "bank.accounts"
    run(1000, Policy(columns=[ColumnRule(columns=[f"{table}.{name}"], action="exclude")]))
    (found,) = [value for value in run(2000, Policy()) if "tableChanges" in value]

    assert found["rewritten"] == [f"column {name} was left out before"]


def described(number):
    return TableDescription(
        identity=str(number), name=f"public.t{number}", columns=(), schema="", catalog=lambda: None, left_out=()
    )


def test_thousands_of_tables_take_as_many_steps_as_there_are(tmp_path):
    """A database of 50,000 tables: each of them was compared with all, and each mark wrote the words of all."""
    many = 6_000
    history = TableHistory(tmp_path, "jakarta/bank", copies=True)
    history.begin(1, 0)
    before = time.process_time()
    for number in range(many):
        history.announce(described(number), number + 1)
    history.move([f"public.t{number}" for number in range(0, many, 2)], "moved", many + 1)
    history.move([f"public.other{number}" for number in range(many)], "moved", many + 1)

    assert time.process_time() - before < 5
    assert len(history.warnings) == many // 2 + many
    (first, second) = [request.tables for _, request in SnapshotStore(tmp_path, "jakarta/bank").waiting()]
    assert (len(first), len(second)) == (many // 2, many)
