"""Making a source: whatever moment `init` is cut at, running it again finishes it, and nothing foreign is taken."""

import pytest

from edge.postgres import setup
from headrace.errors import NeedsOperator
from tests.fix_edge import arrive


@pytest.fixture
def fresh(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    return edges(database, interconnect.url)


def slots(database):
    return database.execute("select slot_name from pg_replication_slots where database = %s", [database.name])


def test_init_makes_publication_slot_and_checkpoint_and_prints_them(fresh, database):
    done = fresh.command("init")

    assert done.returncode == 0, done.stderr
    assert f"Made publication {database.name} for all tables" in done.stdout
    assert f"Made slot {database.name}" in done.stdout
    assert str(fresh.checkpoint_file) in done.stdout
    assert fresh.checkpoint["confirmed_lsn"] == fresh.slot()["confirmed_flush_lsn"]
    assert fresh.slot()["plugin"] == "pgoutput"


def test_init_again_changes_nothing(fresh, database):
    fresh.init()
    before = fresh.checkpoint, fresh.slot()

    said = fresh.init()

    assert "Already made" in said[0]
    assert (fresh.checkpoint, fresh.slot()) == before


@pytest.mark.parametrize(
    "step",
    ["make_publication", "find_slot", "SourceSetup._make_slot", "SourceSetup._complete"],
    ids=["before the publication", "before anything", "before the slot", "before the last checkpoint"],
)
def test_init_cut_at_any_moment_is_finished_by_the_next_one(fresh, database, interconnect, monkeypatch, step):
    class Cut(BaseException):
        pass

    def cut(*_arguments):
        raise Cut

    with monkeypatch.context() as patch:
        holder, _, name = step.rpartition(".")
        patch.setattr(getattr(setup, holder) if holder else setup, name, cut)
        with pytest.raises(Cut):
            fresh.init()

    fresh.init()

    assert slots(database) == [(database.name,)]
    with fresh.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)


def test_listed_tables_alone_are_captured(fresh, database, interconnect):
    database.execute('create schema "Odd"; create table "Odd"."Table" (id int primary key)')
    fresh.path.write_text(fresh.path.read_text().replace("[interconnect]", 'tables = ["Odd.Table"]\n\n[interconnect]'))
    fresh.init()

    with fresh.running():
        database.execute("insert into t values (1)")
        database.execute('insert into "Odd"."Table" values (2)')
        arrive(interconnect, 1)

    assert [change["source"]["table"] for change in interconnect.changes] == ["Table"]


def test_table_that_does_not_exist_is_named(fresh, database):
    fresh.path.write_text(
        fresh.path.read_text().replace("[interconnect]", 'tables = ["public.none"]\n\n[interconnect]')
    )

    with pytest.raises(NeedsOperator, match=r'relation "public.none" does not exist') as raised:
        fresh.init()

    assert "tables" in raised.value.hint
    assert slots(database) == []


def test_slot_of_another_plugin_is_left_alone(fresh, database):
    fresh.init()
    fresh.checkpoint_file.unlink()
    database.execute("select pg_drop_replication_slot(%s)", [database.name])
    database.execute("select pg_create_logical_replication_slot(%s, 'test_decoding')", [database.name])

    with pytest.raises(NeedsOperator, match="exists, and there is no checkpoint"):
        fresh.init()
    with pytest.raises(NeedsOperator, match="has the plugin test_decoding"):
        fresh.init(setup.Adoption(None))


def test_adopting_is_refused_while_there_is_a_checkpoint_or_no_slot(fresh, database):
    with pytest.raises(NeedsOperator, match="no slot"):
        fresh.init(setup.Adoption(None))
    fresh.init()
    with pytest.raises(NeedsOperator, match="nothing is to be adopted"):
        fresh.init(setup.Adoption(None))


def test_position_shows_checkpoint_and_slot(fresh):
    fresh.init()

    done = fresh.command("position")

    assert done.returncode == 0
    assert f"confirmed_lsn       {fresh.checkpoint['confirmed_lsn']}" in done.stdout
    assert "slot_wal_status     reserved" in done.stdout
