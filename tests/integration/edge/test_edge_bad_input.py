"""Whatever is wrong around an edge gives one clear sentence, what to do, and the right exit code."""

import pytest

from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from infra.local.postgres import Postgres
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database, reload


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A cluster that asks for passwords and writes no logical log."""
    server = Postgres(tmp_path_factory.mktemp("strict"), settings={"wal_level": "replica"})
    server.start()
    server.psql("create role cdc login password 'right'; create role writer login password 'right' replication")
    rules = server.data / "pg_hba.conf"
    rules.write_text(
        "host all postgres 127.0.0.1/32 trust\nlocal all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        "host replication writer 127.0.0.1/32 scram-sha-256\n"
    )
    reload(server)
    yield Database(server)
    server.delete()


def refused(edge, *arguments, code=3):
    """Return what the command says on standard error, one paragraph, when it is refused with `code`."""
    done = edge.command(*arguments)
    assert done.returncode == code, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith(("headrace:", "What to do:"))]
    assert len(said) == 2, done.stderr
    return " ".join(said)


def not_made(edge, kind=NeedsOperator):
    """Return what `init` says, run in this process, when it is refused."""
    with pytest.raises(kind) as raised:
        edge.init()
    assert type(raised.value) is kind
    return f"{raised.value.message} {raised.value.hint}"


def test_wrong_password(edges, strict, interconnect, monkeypatch):
    monkeypatch.setenv("EDGE_PASSWORD", "wrong")
    edge = edges(strict, interconnect.url, user="cdc", more='password = "env:EDGE_PASSWORD"')

    said = refused(edge, "init")

    assert 'password authentication failed for user "cdc"' in said
    assert "[source.postgresql] password" in said
    assert "wrong" not in said


def test_password_reference_that_leads_nowhere(edges, strict, interconnect):
    edge = edges(strict, interconnect.url, user="cdc", more='password = "env:NOT_SET_ANYWHERE"')

    assert "NOT_SET_ANYWHERE is not set" in not_made(edge, ConfigurationError)


def test_user_without_replication_privilege(edges, strict, interconnect, monkeypatch):
    monkeypatch.setenv("EDGE_PASSWORD", "right")
    edge = edges(strict, interconnect.url, user="cdc", more='password = "env:EDGE_PASSWORD"')

    assert 'alter role "cdc" replication;' in not_made(edge)


def test_database_that_does_not_exist(edges, database, interconnect):
    edge = edges(database, interconnect.url)
    edge.path.write_text(edge.path.read_text().replace(f'database = "{database.name}"', 'database = "nowhere"'))

    assert 'database "nowhere" does not exist' in not_made(edge)


def test_server_that_writes_no_logical_log(edges, strict, interconnect):
    edge = edges(strict, interconnect.url)

    said = not_made(edge)

    assert "wal_level is 'replica'" in said
    assert "alter system set wal_level" in said


def test_server_that_cannot_be_reached_at_init(edges, database, interconnect):
    edge = edges(database, interconnect.url)
    edge.path.write_text(edge.path.read_text().replace(f"port = {database.postgres.port}", "port = 1"))

    with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1/"):
        edge.init()


def test_source_that_was_not_initialised(edges, database, interconnect):
    edge = edges(database, interconnect.url)

    assert "headrace edge init --config" in refused(edge, "run")


def test_damaged_checkpoint(edge):
    edge.checkpoint_file.write_text("{")

    assert "is damaged" in refused(edge, "run")


def test_configuration_that_names_another_slot(edge, database):
    edge.path.write_text(edge.path.read_text().replace(f'slot = "{database.name}"', 'slot = "other"'))

    assert "the configuration names others" in refused(edge, "run")


def test_interconnect_that_refuses_the_address_for_good(edge, interconnect):
    interconnect.refusal = ("amqp:unauthorized-access", "no permission for cdc/jakarta/bank")

    said = refused(edge, "run")

    assert "does not let this edge send to cdc/jakarta/bank" in said
    assert "no permission for cdc/jakarta/bank" in said


def test_interconnect_that_does_not_know_the_source_yet_is_tried_again(edge, database, interconnect):
    interconnect.refusal = ("amqp:not-found", "source jakarta/bank is in no stream")
    database.execute("insert into t values (1)")
    edge.start()
    log = edge.folder / "edge.log"
    eventually(lambda: "amqp:not-found source jakarta/bank is in no stream" in log.read_text())

    interconnect.refusal = None

    arrive(interconnect, 1)
    assert edge.terminate() == 0


def test_interconnect_that_is_not_there_yet_is_waited_for(edges, database, interconnects):
    database.execute("create table t (id int primary key, note text)")
    late = interconnects()
    edge = edges(database, late.url)
    late.close()
    edge.init()
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        eventually(lambda: agent.figures.captured)
        again = interconnects(f"127.0.0.1:{late.port}")
        arrive(again, 1)


def test_interconnect_whose_name_is_not_known_is_tried_again(edges, database, caplog):
    edge = edges(database, "amqp://no-such-host.invalid")
    edge.init()

    with edge.running():
        eventually(lambda: "interconnect amqp://no-such-host.invalid cannot be reached" in caplog.text)


def test_user_and_password_never_travel_in_the_clear(edges, database):
    edge = edges(database, "amqp://router.example:5672")
    edge.path.write_text(edge.path.read_text().replace("[state]", 'user = "cdc"\n\n[state]'))
    database.execute("create table t (id int primary key, note text)")
    edge.init()

    with edge.running() as agent:
        error = agent.ended()

    assert isinstance(error, NeedsOperator)
    assert "in the clear" in error.message


def test_url_with_a_password_is_refused_without_printing_it(edges, database):
    edge = edges(database, "amqps://cdc:s3cret@router.example")
    edge.init()

    with edge.running() as agent:
        error = agent.ended()

    assert "s3cret" not in error.message + error.hint
    assert "[interconnect] user and password" in error.hint
