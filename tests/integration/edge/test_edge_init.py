"""Making a source: whatever moment `init` is cut at, running it again finishes it, and nothing foreign is taken."""

import threading
from contextlib import closing

import psycopg2
import pytest

from edge.commands.lifecycle import initialise
from edge.postgres import connection, publishing, setup
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


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


def test_a_table_without_replica_identity_is_left_out_and_can_still_be_updated(fresh, database, interconnect):
    """Q1, Q2: a publication for all tables would make the server refuse its updates and deletes."""
    database.execute("create table sessions (id int, note text)")
    database.execute("create table logs (id int, day int) partition by list (day)")
    database.execute("create table logs_1 partition of logs for values in (1)")
    database.execute("create table parent (id int primary key); create table child () inherits (parent)")

    done = fresh.command("init")

    assert done.returncode == 0, done.stderr
    for table in ("sessions", "logs_1", "child"):
        database.execute(
            f"insert into {table} (id) values (1)" if table != "logs_1" else "insert into logs values (1, 1)"
        )
        database.execute(f"update {table} set id = 2")
        database.execute(f"delete from {table}")
    left_out = [line for line in done.stdout.splitlines() if line.startswith("Left out")]
    assert [line.split(":")[0] for line in left_out] == [
        "Left out public.child", "Left out public.logs", "Left out public.sessions"
    ]  # fmt: skip
    # What is said includes them, and they can be updated all the same.
    for line in left_out:
        database.execute(line.partition("To capture it: ")[2])
    with fresh.running():
        for table in ("sessions", "logs", "child"):
            database.execute(
                f"insert into {table} (id) values (3)" if table != "logs" else "insert into logs values (3, 1)"
            )
            database.execute(f"update {table} set id = 4")
        arrive(interconnect, 6)


def test_listed_tables_without_replica_identity_alone_make_no_publication(fresh, database):
    """Q2: nothing would be captured, so nothing is made."""
    database.execute("create table sessions (id int, note text)")
    fresh.path.write_text(
        fresh.path.read_text().replace("[interconnect]", 'tables = ["public.sessions"]\n\n[interconnect]')
    )

    with pytest.raises(NeedsOperator, match=r"no table can be published: .* public.sessions") as raised:
        fresh.init()

    assert "alter table public.sessions replica identity full;" in raised.value.hint
    assert database.execute("select count(*) from pg_publication") == [(0,)]
    assert slots(database) == []


def test_replica_identity_full_prints_what_it_does_and_asks(fresh, database):
    """Q2: with the option, tables without replica identity get one, and are published."""
    database.execute("create table sessions (id int, note text)")

    asked = fresh.command("init", "--replica-identity", "full")
    assert asked.returncode == 2
    assert "alter table public.sessions replica identity full;  -- each update and delete" in asked.stdout
    assert "no terminal" in asked.stderr
    assert database.execute("select relreplident from pg_class where relname = 'sessions'") == [("d",)]

    done = fresh.command("init", "--replica-identity", "full", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"Made publication {database.name} for all tables" in done.stdout
    database.execute("insert into sessions values (1); update sessions set id = 2")


def test_a_row_filter_by_a_column_that_old_rows_lack_is_refused_before_it_harms(fresh, database):
    """Q2: such a filter makes the server refuse updates of the table."""
    filtered = 'tables = ["public.t"]\nrow_filters = { "public.t" = "note = \'ID\'" }'
    fresh.path.write_text(fresh.path.read_text().replace("[interconnect]", f"{filtered}\n\n[interconnect]"))

    with pytest.raises(NeedsOperator, match="its row filter needs a column") as raised:
        fresh.init()

    assert database.execute("select count(*) from pg_publication") == [(0,)]
    database.execute("insert into t values (1, 'ID'); update t set note = 'UK'")
    database.execute(raised.value.hint.partition("after: ")[2].partition(";")[0])
    fresh.init()
    database.execute("update t set note = 'ID'")


#: A log of what was made and altered, as databases have it: its table without a schema, one row checked at the commit.
NOTED = """
create schema noted; create table noted.ddl_log (tag text primary key);
create function noted.checked() returns trigger language plpgsql as $$
begin perform from ddl_log; return null; end $$;
create constraint trigger checked after insert on noted.ddl_log deferrable initially deferred
for each row execute function noted.checked();
create function noted.note() returns event_trigger language plpgsql as $$
begin insert into ddl_log values (tg_event || ' ' || tg_tag) on conflict do nothing; end $$;
create event trigger made on ddl_command_end execute function noted.note();
create event trigger dropped on sql_drop execute function noted.note();
"""


def test_event_triggers_run_under_the_path_that_the_role_has_in_its_database(fresh, database):
    database.execute("create table sessions (id int)")
    database.execute(f"alter database {database.name} set search_path = noted, public")
    database.execute(NOTED)
    database.execute("truncate noted.ddl_log")

    done = fresh.command("init", "--replica-identity", "full", "--yes")
    assert done.returncode == 0, done.stderr
    gone = fresh.command("retire", "--yes")
    assert gone.returncode == 0, gone.stderr

    assert {tag for (tag,) in database.execute("select tag from noted.ddl_log")} == {
        "ddl_command_end ALTER TABLE",
        "ddl_command_end CREATE PUBLICATION",
        "ddl_command_end DROP PUBLICATION",
        "sql_drop DROP PUBLICATION",
    }


def test_the_slot_is_made_when_a_long_transaction_ends_and_what_is_waited_for_is_said(fresh, database, monkeypatch):
    """G6: the connection's statement_timeout ended it after a minute, each time."""
    monkeypatch.setitem(connection._ORDINARY, "statement_timeout", "1s")
    with closing(psycopg2.connect(database.dsn)) as writer:
        writer.cursor().execute("insert into t values (1)")
        said: list[str] = []
        failed: list[BaseException] = []

        def init():
            try:
                initialise(fresh.config, None, said.append)
            except BaseException as error:  # noqa: BLE001 - the test looks at it.
                failed.append(error)

        waiting = threading.Thread(target=init)
        waiting.start()
        pid = writer.info.backend_pid
        waits = (
            "select count(*) from pg_stat_activity where query like '%%pg_create_logical%%' and state = 'active' "
            "and clock_timestamp() - query_start > interval '2 s' and datname = %s and pid <> pg_backend_pid()"
        )
        eventually(lambda: failed or database.execute(waits, [database.name]) == [(1,)], saying="init waits")
        writer.rollback()
        waiting.join(60)

    assert failed == []
    assert any(f"Waits for process {pid}" in line for line in said)
    assert fresh.checkpoint["stage"] == "made"


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


def rows_looked_at(plan):
    """Return how many rows all nodes of a plan that ran looked at."""
    here = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return here + sum(rows_looked_at(below) for below in plan.get("Plans", []))


@pytest.mark.parametrize("listed", [False, True], ids=["all tables", "listed tables"])
def test_what_can_be_published_is_found_in_as_many_steps_as_there_are_tables(database, listed):
    """With 6,000 tables `init` reached its statement's time limit: each table was compared with all."""
    many = 300
    database.execute(";".join(f"create table t{number} (id int primary key)" for number in range(many)))
    database.execute(
        "create table r (id int primary key) partition by range (id);"
        + ";".join(f"create table r{at} partition of r for values from ({at}) to ({at + 1})" for at in range(100))
    )
    database.execute("analyze pg_class; analyze pg_index; analyze pg_inherits")
    names = [f"public.t{number}" for number in range(many)]
    database.execute(f"create publication p for {'table ' + ', '.join(names) if listed else 'all tables'}")
    for statement, parameters in (
        (publishing._CANDIDATES, [listed, names]),
        (publishing._REFUSED, ["p", "p", "p"]),
    ):
        ((plans,),) = database.execute(f"explain (analyze, format json) {statement}", parameters)
        assert rows_looked_at(plans[0]["Plan"]) < 100 * many
