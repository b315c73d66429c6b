"""Tables that change in no log are found, over restarts too, reported, and copied where that is wanted (L7, T14)."""

import json
import struct

import pytest

from bridge.source.chain import Next, judge
from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.postgres.snapshot_table import SnapshotTable
from edge.records.alterations import Catalog, KnownColumn, alterations
from edge.records.column_policy import Policy as ColumnPolicy
from edge.snapshot.plan import Plan
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.configuration.policy import ColumnRule, Policy
from headrace.errors import NoSpace, NotConnected
from headrace.position import Position
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.test_decoder import ANA, ID, NAME, mysql_gtid, query, rows, table_map, xid
from tests.unit.edge.mysql.test_snapshot_decoder import FIELDS, Stream
from tests.unit.edge.postgres.messages import (
    EPOCH,
    INT4,
    INT8,
    TEXT,
    Column,
    Log,
    begin,
    commit,
    insert,
    relation,
    type_name,
)
from tests.unit.edge.postgres.messages import NUMERIC as NUMBER

SOURCE = "jakarta/bank"
KEY, NOTE = Column("id", INT4, key=True), Column("note")
BEFORE = relation(KEY, NOTE)
COPY = "'headrace edge snapshot public.accounts --replace'"


def catalog(*filled, **numbers):
    """What the catalog says of columns, by their numbers; some of them have a value in rows of before."""
    newest = max(numbers.values())
    return lambda _relation: Catalog(numbers, {name: name in filled for name in numbers}, newest)


def opened(folder, **options):
    made = TableHistory(folder, SOURCE, **options)
    made.begin(EPOCH, options.get("sent_until", 0))
    return made


def session(folder, *transactions, catalog_of=lambda _: None, sent_until=0, copies=False, **options):
    """Return the values of what a session reads: for each transaction its place, and messages."""
    history = TableHistory(folder, SOURCE, copies=copies)
    history.begin(EPOCH, sent_until)
    log = Log(history=history, catalog_of=catalog_of, **options)
    for place, *messages in transactions:
        log.transaction(*messages, commit_lsn=place, end=place + 10)
    history.close()
    return [json.loads(value) for batch in log.batches() for value in batch.values]


def schemas(values):
    return [(value["source"]["position"][9:25], value.get("rewritten")) for value in values if "tableChanges" in value]


def place(number):
    return f"{number:016x}"


def waiting(folder):
    return [request.tables for _, request in SnapshotStore(folder, SOURCE).waiting()]


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


def test_copy_is_asked_for_before_the_record_is_passed_on_and_clears_the_warning(tmp_path, monkeypatch):
    known, altered = catalog(id=1, note=2), catalog(id=1, memo=2)
    old, new = (1000, BEFORE, insert(1, "a")), (2000, relation(KEY, Column("memo")), insert(1, "a"))
    session(tmp_path, old, catalog_of=known)

    # Where the disk takes no request, the record does not pass, and the next session finds the alteration again.
    def full(*_):
        raise NoSpace("full")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "request", full)
        with pytest.raises(NoSpace):
            session(tmp_path, new, catalog_of=altered, copies=True)
    assert TableHistory(tmp_path, SOURCE).warnings == {}
    assert schemas(session(tmp_path, new, catalog_of=altered, copies=True))[0][1] is not None
    ((_, request),) = SnapshotStore(tmp_path, SOURCE).waiting()

    assert (request.tables, request.replace, request.restart) == (["public.accounts"], True, True)
    warned = {}
    history = TableHistory(tmp_path, SOURCE, warned=warned)
    assert COPY in warned["copy of public.accounts"]
    history.copied("public.accounts", 0)
    assert warned
    history.copied("public.accounts", 1 << 60)
    assert warned == TableHistory(tmp_path, SOURCE).warnings == {}


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


@pytest.mark.parametrize("kind", ["table", "label"])
def test_copy_that_the_disk_refused_is_asked_for_by_the_next_session_of_the_same_process(tmp_path, monkeypatch, kind):
    """L7: the sessions of a process share one history; what a session could not write is found by the next one."""
    history = opened(tmp_path, copies=True)
    old = relation(KEY, Column("mood", 90000))
    former = Log(history=history, catalog_of=catalog(id=1, mood=2))
    former.transaction(type_name(90000, "mood"), old, insert(1, "sad"), commit_lsn=1000, end=1010)
    history.labels({"mood": {"1": "sad"}})

    def alter():
        history.begin(EPOCH, 1000)
        history.labels({"mood": {"1": "blue" if kind == "label" else "sad"}})
        renamed = old if kind == "label" else relation(KEY, Column("temper", 90000))
        log = Log(history=history, catalog_of=catalog(id=1, mood=2, temper=2))
        log.transaction(type_name(90000, "mood"), renamed, insert(2, "sad"), commit_lsn=2000, end=2010)
        return [it.value for it in log.records()]

    with monkeypatch.context() as patch:
        patch.setattr("headrace.files.write_private", refused)
        with pytest.raises(NoSpace):
            alter()
    (found,) = schemas(alter())

    assert len(found[1]) == 1
    assert waiting(tmp_path) == [["public.accounts"]]
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ["public.accounts"]


def refused(*_):
    raise NoSpace("full")


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


def test_a_copy_that_is_under_way_begins_again():
    plan = Plan(source=SOURCE)
    plan.add("t", where=None, replace=True, now_ms=1)
    plan.tables[0].cursor, plan.tables[0].rows, plan.tables[0].state = ["4"], 4, "running"

    plan.add("t", where=None, replace=True, now_ms=2)
    assert plan.tables[0].cursor == ["4"]
    plan.add("t", where=None, replace=True, now_ms=3, restart=True)

    assert [(it.cursor, it.rows, it.state) for it in plan.tables] == [(None, 0, "waiting")]


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
    found = session(tmp_path, (2000, type_name(90000, "mood"), old, insert(2, "well")), (2500, insert(3, "well")))
    assert schemas(found) == [(place(2000), ["a label of type mood was renamed"])]


def snapshot_table(announced):
    return SnapshotTable(
        oid=int.from_bytes(announced[1:5], "big"),
        publication_oid=1,
        count=2,
        selected="",
        key=(0,),
        key_names=("id",),
        ordered="",
        casts=(),
        source="",
        row_filter=None,
        messages=(announced,),
        shape="",
    )


def test_what_a_copy_of_a_postgresql_table_finds_where_it_begins_needs_no_other_one(tmp_path):
    history = opened(tmp_path, copies=True)
    log = Log(history=history, catalog_of=catalog(id=1, note=2, memo=2), kind=SnapshotDecoder)
    log.transaction(BEFORE, insert(1, "a"), commit_lsn=1000, end=1010)
    log.feed(begin(2000))
    copied = relation(KEY, Column("memo"))
    log.decoder.truncate(snapshot_table(copied))
    log.feed(commit(2000, 2010))

    assert waiting(tmp_path) == []
    assert history.warnings == {}
    assert [rewritten for _, rewritten in schemas([it.value for it in log.records()])] == [
        None,
        ["column note was renamed to memo"],
    ]


def test_what_a_copy_of_a_mariadb_table_finds_where_it_begins_needs_no_other_one(tmp_path):
    """The log and the catalog describe a table alike."""
    renamed = (FIELDS[0], FIELDS[1]._replace(name="memo"))
    history = TableHistory(tmp_path, SOURCE, copies=True)
    history.begin(1, 0)
    former = Stream(tmp_path, history=history)
    former.feed(events.mariadb_gtid(1, 46), events.table_map(*renamed), events.rows(23, 2, IMAGE), events.xid(140))
    stream = Stream(tmp_path, history=history)
    stream.feed(events.mariadb_gtid(2, 182), events.xid(200))
    stream.decoder.truncate(stream.copied)

    assert waiting(tmp_path) == []
    assert history.warnings == {}
    found = [json.loads(value) for value in stream.batcher.values]
    assert [value["rewritten"] for value in found if "tableChanges" in value] == [["column memo was renamed to note"]]


IMAGE = b"\0" + struct.pack("<i", 1) + struct.pack("<H", 1) + b"s"
FULL = relation(Column("id", INT4, key=True), Column("code", TEXT, key=True), identity="f")


@pytest.mark.parametrize("tail", [1000, 2000, 3000])
def test_a_key_that_was_altered_since_is_never_taken_for_the_former_one_e5(tmp_path, tail):
    """E5: the log does not tell the key of such a table; after a crash it is read with the key of now."""
    log = [(1000, FULL, insert(1, "a")), (2000, insert(2, "b")), (3000, insert(3, "c")), (4000, insert(4, "d"))]
    sent = opened(tmp_path)
    former = Log(history=sent, key_of=lambda _: ["id"])
    for at, *messages in log[:3]:
        former.transaction(*messages, commit_lsn=at, end=at + 10)
    former.sealed()
    # when the edge is killed, its key is altered, and the far side has the records up to `tail`
    history = TableHistory(tmp_path, SOURCE)
    history.begin(EPOCH, 3000)
    present = Log(history=history, key_of=lambda _: ["code"])
    for at, *messages in log:
        present.transaction(*messages, commit_lsn=at, end=at + 10)
    kafka, position = [], Position(EPOCH, tail, 0)
    for batch in present.batches():
        verdict = judge(position, batch)
        if isinstance(verdict, Next):
            kafka += zip(batch.keys[verdict.begin :], batch.values[verdict.begin :], strict=True)
    # then the first record that it takes is the schema record with the present key, and the last one has none ahead
    keys = [
        json.loads(value)["tableChanges"][0]["table"]["primaryKeyColumnNames"]
        for _, value in kafka
        if b"tableC" in value
    ]
    assert b"tableChanges" in kafka[0][1]
    assert set(map(tuple, keys)) == {("code",)}
    assert json.loads(kafka[-1][0]) == {"code": "d"}


def test_former_release_kept_no_history_so_its_records_may_be_of_another_key_e5(tmp_path):
    found = session(
        tmp_path, (1000, FULL, insert(1, "a")), (2000, insert(2, "b")), (3000, insert(3, "c")), sent_until=2000
    )
    assert [at for at, _ in schemas(found)] == [place(1000), place(2000), place(3000)]


def test_schema_that_is_the_log_s_own_is_sent_once_though_nothing_is_known_of_the_table_e5(tmp_path):
    """After a kill, or where a former release kept no history: who reads the log again finds the schema of before."""
    found = session(tmp_path, (1000, BEFORE, insert(1, "a")), (2000, insert(2, "b")), sent_until=2000)
    assert [at for at, _ in schemas(found)] == [place(1000)]


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
        made, batcher = events.decoder(history=history, filled=filled)
        body = [query("BEGIN", at + 50), table_map(*given), rows(30, 2, images), xid(at + 300)]
        events.feed(made, events.rotate(), mysql_gtid(at, at), *body)
        history.close()
        return [value for value in map(json.loads, batcher.values) if "tableChanges" in value]

    run((ID, NAME), 500)
    (schema,) = run(columns, 1500)
    assert schema.get("rewritten", "same") == reasons
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ([] if reasons == "same" else ["bank.accounts"])


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (("numeric", 10, 2), ("numeric", 12, 2), []),
        (("numeric", 10, 2), ("numeric", 10, 1), ["the type of column c was changed"]),
        (("numeric", None, None), ("numeric", 10, 2), ["the type of column c was changed"]),
        (("numeric", 10, 2), ("numeric", None, None), []),
        (("varchar", 10, None), ("varchar", 20, None), []),
        (("varchar", 20, None), ("varchar", 10, None), ["the type of column c was changed"]),
        (("varchar", 20, None), ("text", None, None), []),
        (("bit", 4, None), ("bit", 8, None), ["the type of column c was changed"]),
        (("float4", None, None), ("float8", None, None), []),
        (("int8", None, None), ("int4", None, None), ["the type of column c was changed"]),
        (("timestamp", None, None), ("timestamptz", None, None), ["the type of column c was changed"]),
    ],
)
def test_types_whose_values_stay_need_no_copy(old, new, reasons):
    before, after = (KnownColumn("c", *given, number=1) for given in (old, new))
    assert alterations([before], [after], Catalog({"c": 1}, {"c": False}), types=True) == reasons


OLD = [KnownColumn("a", "text", number=1), KnownColumn("c", "text", number=3)]


@pytest.mark.parametrize(
    ("column", "newest", "filled", "reasons"),
    [
        (KnownColumn("d", "text", number=4), 3, False, []),
        # The database had it already: it may have been outside the publication's column list.
        (KnownColumn("b", "text", number=2), 3, False, None),
        (KnownColumn("d", "text", number=4), 4, False, None),
        (KnownColumn("d", "text", number=4), 4, True, ["column d was added with a default"]),
        (KnownColumn("d", "text", number=4), 0, False, None),
        (KnownColumn("hidden", "text", number=4), 4, False, ["column hidden was left out before"]),
        (KnownColumn("hidden", "text"), 0, False, ["column hidden was left out before"]),
    ],
)
def test_a_column_that_records_did_not_have_is_not_taken_for_one_without_values(column, newest, filled, reasons):
    now = Catalog({}, {column.name: filled})
    new = [*OLD, column]

    assert alterations(OLD, new, now, types=True, newest=newest, left_out=["hidden"]) == reasons


def test_a_type_that_is_no_reason_leaves_open_whether_rows_changed():
    new = [KnownColumn("a", "text"), KnownColumn("c", "int")]
    assert alterations(OLD, new, Catalog({}, {"a": False, "c": False}), types=False) is None


def test_a_column_that_was_dropped_and_added_again_has_other_values():
    new = [KnownColumn("a", "text", number=1), KnownColumn("c", "text", number=4)]
    found = alterations(OLD, new, Catalog({"a": 1, "c": 4}, {"a": False, "c": False}), types=True, newest=3)
    assert found == ["column c was dropped and added again"]


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_a_column_that_the_policy_left_out_needs_a_copy_once_it_is_not(tmp_path, engine):
    def run(at, policy):
        if engine == "postgresql":
            return session(
                tmp_path, (at, BEFORE, insert(1, "a")), catalog_of=catalog(id=1, note=2), policy=ColumnPolicy(policy)
            )
        history = TableHistory(tmp_path, SOURCE)
        history.begin(1, 0)
        made, batcher = events.decoder(history=history, filled={"id": False, "name": False}, policy=policy)
        body = [query("BEGIN", at + 50), table_map(ID, NAME), rows(30, 2, ANA), xid(at + 300)]
        events.feed(made, events.rotate(), mysql_gtid(at, at), *body)
        history.close()
        return [json.loads(value) for value in batcher.values]

    name = "note" if engine == "postgresql" else "name"
    table = "public.accounts" if engine == "postgresql" else "bank.accounts"
    run(1000, Policy(columns=[ColumnRule(columns=[f"{table}.{name}"], action="exclude")]))
    (found,) = [value for value in run(2000, Policy()) if "tableChanges" in value]

    assert found["rewritten"] == [f"column {name} was left out before"]


def test_columns_that_swap_their_names_are_renamed():
    old = [KnownColumn("a", "text", number=1), KnownColumn("b", "text", number=2)]
    new = [KnownColumn("b", "text", number=1), KnownColumn("a", "text", number=2)]
    found = alterations(old, new, Catalog({"b": 1, "a": 2}, {"a": False, "b": False}), types=True)
    assert found == ["column a was renamed to b", "column b was renamed to a"]
