"""Tables whose rows change in no log: the edge reports them, and copies them where that is wanted, for both engines (L7, T14)."""

from edge.command import read_status
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, ended, folder, held, stored
from tests.rules.waiting import eventually

COPIES = '[snapshot]\nafter_alter = "copy"\n'


def rewritten(interconnect, table):
    """Return what the schema records of a table report of its rows, in order."""
    return [
        value.get("rewritten")
        for _, _, value in interconnect.records
        if "tableChanges" in value and value["source"]["table"] == table
    ]


def warned(agent, *parts):
    return eventually(
        lambda: [text for text in agent.figures.warnings if all(part in text for part in parts)],
        saying=f"a warning with {parts}",
    )


def test_altered_postgresql_tables_are_reported_until_they_are_copied(edge, database, interconnect):
    database.execute("create type mood as enum ('sad', 'well')")
    database.execute("create table e (id int primary key, mood mood); create table r (id int primary key)")
    with edge.running() as agent:
        database.execute(
            "insert into t values (1, 'a'), (2, 'b'); insert into e values (1, 'sad'); insert into r values (1)"
        )
        arrive(interconnect, 4)
        assert not agent.figures.warnings
    # when tables are altered while the edge is down, and while it runs
    database.execute(
        "alter table t rename note to memo; alter table t add more text default 'x'; alter table r rename to s"
    )
    with edge.running() as agent:
        database.execute("insert into t values (3, 'c'); insert into s values (2)")
        arrive(interconnect, 6)
        warned(agent, "public.t needs a copy", "note was renamed to memo", "more was added with a default")
        warned(agent, "public.s needs a copy", "called public.r")
        database.execute("alter type mood rename value 'sad' to 'blue'")
        warned(agent, "public.e needs a copy", "a label of type mood was renamed")
        database.execute("insert into e values (2, 'well'); alter table t add plain int; insert into t values (4, 'd')")
        arrive(interconnect, 8)
        assert rewritten(interconnect, "t") == [
            None,
            ["column note was renamed to memo", "column more was added with a default"],
            [],
        ]
        assert rewritten(interconnect, "s") == [["the table was called public.r"]]
        assert rewritten(interconnect, "e")[-1] == ["a label of type mood was renamed"]
        # then a copy that begins with a truncate ends the warning, and no other one does
        copy(edge, "public.t")
        assert len(agent.figures.warnings) == 3
        copy(edge, "public.t", replace=True)
        assert len(eventually(lambda: len(agent.figures.warnings) < 3 and agent.figures.warnings)) == 2
    assert held(interconnect, "t") == stored(database, "t")
    # when copies are wanted
    edge.path.write_text(edge.path.read_text() + COPIES)
    with edge.running() as agent:
        database.execute("alter table t rename memo to remark; insert into t values (5, 'e')")
        database.execute("alter type mood rename value 'blue' to 'low'")
        eventually(lambda: {"public.t", "public.e"} <= {it.name for it in folder(edge).plan().tables if it.replace})
        ended(edge, "public.t", "public.e")
        eventually(lambda: [text[:8] for text in agent.figures.warnings] == ["public.s"], saying="only s needs a copy")
    assert held(interconnect, "t") == stored(database, "t")
    assert held(interconnect, "e") == stored(database, "e")
    # A person who asks while the edge is down sees it, too.
    assert [text[:20] for source in read_status(edge.config) for text in source.warnings] == ["public.s needs a cop"]
    # A table that does not exist any more needs none.
    database.execute("drop table s")
    with edge.running() as agent:
        eventually(lambda: not agent.figures.warnings, saying="no table needs a copy")


def test_altered_mariadb_table_is_reported_and_copied(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, rest=COPIES)
    edge.init()
    with edge.running():
        maria.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
        maria.execute("alter table t change note memo text")
        maria.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
        eventually(lambda: folder(edge).plan().tables, saying="a copy is asked for")
        (name,) = [it.name for it in folder(edge).plan().tables]
        ended(edge, name)
        maria.execute("alter table t add more int not null default 7, add plain int")
        maria.execute("insert into t (id, memo) values (3, 'c')")
        eventually(
            lambda: (
                [change["after"] for change in interconnect.changes if change["op"] == "r"][-3:-2]
                == [{"id": 1, "memo": "a", "more": 7, "plain": None}]
            ),
            saying="the second copy arrives",
        )
    said = [each for each in rewritten(interconnect, "t") if each]
    assert said == [["column note was renamed to memo"], ["column more was added with a default"]]
