"""`headrace edge doctor` finds what would go wrong, with the SQL that mends it, and changes nothing."""

import json
import re

import pytest

from edge import compiled
from edge.doctor.examine import examine
from edge.doctor.postgres import CheckContext, slot
from edge.postgres.connection import Database
from edge.postgres.engine import PostgresEngine
from headrace.errors import NeedsOperator
from infra.local.server import free_port
from tests.rules.waiting import eventually


def found(edge, *levels):
    """Return the findings by check; of some levels only, if any are given."""
    return {each.check: each for each in examine(edge.config) if not levels or each.level in levels}


@pytest.fixture
def healthy(edges, database, interconnect):
    """Return the file of an edge of which nothing was made yet, with a table and a far side."""
    database.execute("create table t (id int primary key, note text)")
    return edges(database, interconnect.url)


def test_before_init_a_sound_source_has_nothing_wrong_and_nothing_is_made(healthy):
    findings = found(healthy)
    assert [each for each in findings.values() if each.level == "wrong"] == []
    # This server's own settings: no limit.
    assert [name for name, each in findings.items() if each.level == "warning"] == ["max_slot_wal_keep_size"]
    assert "alter system set max_slot_wal_keep_size" in findings["max_slot_wal_keep_size"].fix
    healthy.database.execute("create role rds_superuser")
    try:
        managed = found(healthy, "warning")["max_slot_wal_keep_size"]
    finally:
        healthy.database.execute("drop role rds_superuser")
    assert managed.fix == "Set max_slot_wal_keep_size = 50GB in the parameter group."
    assert findings["checkpoint"].text.startswith("none yet")
    assert findings["row decoder"].text.startswith("compiled" if compiled.module else "Python alone")
    assert findings["interconnect"].text.endswith("takes batches of jakarta/bank")
    assert not (healthy.folder / "state").exists()
    assert healthy.database.execute("select count(*) from pg_publication") == [(0,)]


def test_beside_a_running_edge_it_leaves_the_link_alone(healthy, interconnect):
    healthy.init()
    with healthy.running() as agent:
        eventually(lambda: agent.figures.state == "capturing")
        findings = found(healthy)
        assert [each for each in findings.values() if each.level == "wrong"] == []
        assert "an edge runs" in findings["checkpoint"].text
        assert findings["interconnect"].text.startswith("not tried")
        assert findings["slot"].text.startswith(f"{healthy.database.name}: reserved, retains")
        assert interconnect.attached == 1


def test_a_slot_that_the_running_edge_moves_on_meanwhile_is_not_taken_for_one_that_others_moved(healthy, interconnect):
    healthy.init()
    config = healthy.config
    names = config.source.postgresql
    checkpoint = PostgresEngine(config, names).state.read(config.source.name)
    database = Database(names, config.source.name)
    patient = CheckContext(config, names, database, checkpoint)
    with healthy.running():
        healthy.database.execute("insert into t values (1, 'a')")
        eventually(lambda: healthy.confirmed() > checkpoint.confirmed)
        (finding,) = slot(patient)
    assert finding.level == "ok"
    # Without it, somebody else did.
    with pytest.raises(NeedsOperator, match="was moved by somebody else"):
        list(slot(patient))
    database.close()


def test_tables_whose_updates_would_fail_are_named_with_the_sql_that_mends_them(healthy):
    database = healthy.database
    database.execute('create table "No Key" (id int); create table nothing (id int primary key)')
    database.execute("create table whole (id int); alter table whole replica identity full")
    database.execute("alter table nothing replica identity nothing")
    # Q2: before anything is made, and nothing is made of them.
    before = found(healthy)
    assert "public.No Key, public.nothing the log cannot identify rows" in before["replica identity"].text
    assert (before["replica identity"].level, before["publication"].level) == ("warning", "ok")
    assert "makes it for 2 tables" in before["publication"].text
    database.execute(f"create publication {database.name} for all tables")
    healthy.init()
    findings = found(healthy)
    refused = findings["replica identity"]
    assert refused.level == "wrong"
    assert 'public."No Key", public.nothing' in refused.text
    assert "public.whole" in findings["primary key"].text
    # It is so, and what is said mends it.
    for table in ('"No Key"', "nothing"):
        database.execute(f"insert into {table} values (1)")
        with pytest.raises(Exception, match="does not have a replica identity"):
            database.execute(f"update {table} set id = 2")
    database.execute(refused.fix)
    for table in ('"No Key"', "nothing"):
        database.execute(f"update {table} set id = 2")
    assert found(healthy)["replica identity"].level == "ok"


def test_what_capturing_costs_is_estimated_by_what_the_server_has_counted(healthy):
    """Q2: decision 24: what capturing will cost is said before it begins."""
    cost = found(healthy)["cost"]
    assert cost.level == "ok"
    assert re.search(
        r"writes [\d,]+ MB of log a day, .* \(max_slot_wal_keep_size: -1\); one walsender .* 64 MB", cost.text
    )
    healthy.database.execute("alter table t replica identity full")
    healthy.init()
    assert re.search(r"whole old rows of 1 tables are about \d+ MB", found(healthy)["cost"].text)


def test_a_publication_that_leaves_something_out_is_named(edges, database, interconnect):
    database.execute("create table t (id int primary key); create table u (id int primary key)")
    edge = edges(database, interconnect.url, more='tables = ["public.t", "public.u"]')
    edge.init()
    database.execute(f"alter publication {database.name} drop table u")
    database.execute(f"alter publication {database.name} set (publish = 'insert, update')")
    wrong = [each for each in examine(edge.config) if each.check == "publication" and each.level == "wrong"]
    assert ["does not publish delete, truncate" in wrong[0].text, "lacks public.u" in wrong[1].text] == [True, True]
    for each in wrong:
        database.execute(each.fix)
    assert found(edge)["publication"].level == "ok"


def test_a_role_that_may_not_is_told_what_it_lacks(healthy, postgres):
    name = f"limited_{healthy.database.name}"
    postgres.psql(f"create role {name} login")
    try:
        healthy.path.write_text(healthy.path.read_text().replace('user = "postgres"', f'user = "{name}"'))
        findings = found(healthy)
        assert findings["replication privilege"].fix == f'Run as a superuser: alter role "{name}" replication;'
        assert findings["publication"].level == "wrong"
        # Q1: what is published is listed, so that a table without a key, made later, can be updated.
        assert "for table only public.t;  -- as a superuser" in findings["publication"].fix
        for statement in (findings["replication privilege"].fix, findings["publication"].fix):
            healthy.database.execute(statement.removeprefix("Run as a superuser: "))
        findings = found(healthy)
        assert findings["replication privilege"].level == "ok"
        assert findings["select privilege"].level == "warning"
        healthy.database.execute(findings["select privilege"].fix)
        assert found(healthy)["select privilege"].level == "ok"
    finally:
        healthy.database.execute(f"drop owned by {name}")
        postgres.psql(f"drop role {name}")


def test_a_slot_that_is_gone_is_wrong(healthy):
    healthy.init()
    healthy.database.execute(f"select pg_drop_replication_slot('{healthy.database.name}')")
    gone = found(healthy, "wrong")
    assert list(gone) == ["slot"]
    assert "is gone" in gone["slot"].text


def test_a_far_side_that_refuses_or_is_away_is_said_in_its_words(healthy, interconnect):
    interconnect.refusal = ("amqp:unauthorized-access", "not for you")
    refused = found(healthy, "wrong")["interconnect"]
    assert "not for you" in refused.text
    interconnect.refusal, interconnect.credit = None, 0
    assert "gave no credit" in found(healthy, "warning")["interconnect"].text
    healthy.path.write_text(healthy.path.read_text().replace(interconnect.url, f"amqp://127.0.0.1:{free_port()}"))
    assert "refused" in found(healthy, "wrong")["interconnect"].text


def test_the_command_prints_a_line_a_check_and_ends_with_3_when_something_is_wrong(healthy):
    done = healthy.command("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 wrong, 1 warning," in done.stdout
    healthy.init()
    healthy.database.execute("alter table t replica identity nothing")
    done = healthy.command("doctor", "--json")
    assert done.returncode == 3
    reported = {each["check"]: each for each in json.loads(done.stdout)}
    assert reported["replica identity"]["fix"] == "alter table public.t replica identity default;"


def test_a_database_that_is_away_is_one_finding_and_the_rest_is_looked_at(healthy, postgres):
    healthy.path.write_text(healthy.path.read_text().replace(f"port = {postgres.port}", f"port = {free_port()}"))
    findings = found(healthy)
    assert "cannot be reached" in findings["connection"].text
    assert findings["state folder"].level == "ok"
    assert findings["interconnect"].level == "ok"
