"""What a MariaDB source cannot go on with: each stops the edge with the place in the log, or what to run."""

import re
import shutil
import signal

import pytest

from edge.commands.lifecycle import Adoption, retire
from headrace.errors import CorruptInput, NeedsOperator
from tests.edge.fix_edge import arrive, ids
from tests.edge.reset_log import reset_and_write_as_before
from tests.edge.undecodable import go_on_behind_what_cannot_be_decoded
from tests.integration.edge.snapshots import copy
from tests.rules.waiting import eventually


def on_connection(maria, *statements):
    connection = maria.connect()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


def test_rows_that_the_log_does_not_carry_whole_concern_their_table_alone(maria_edge, maria, interconnect):
    """One such event stopped the source for good (decision 23)."""
    maria.execute("create table u (id int primary key)")
    with maria_edge.running() as running:
        maria.execute("insert into t values (1, 'a')")
        on_connection(maria, "set session binlog_format = 'STATEMENT'", "update t set note = 'secret'")
        maria.execute("insert into t values (2, 'b')")
        on_connection(maria, "set session binlog_format = 'MIXED'", "delete from t where id = 1")
        on_connection(maria, "set session binlog_row_image = 'MINIMAL'", "update t set note = 'y' where id = 2")
        maria.execute("insert into u values (1)")
        maria.execute("insert into t values (3, 'c')")
        arrive(interconnect, 4)

    assert [change["after"] for change in interconnect.changes] == [
        {"id": 1, "note": "a"}, {"id": 2, "note": "b"}, {"id": 1}, {"id": 3, "note": "c"},
    ]  # fmt: skip
    marked = [value["rewritten"] for _, _, value in interconnect.records if value.get("rewritten")]
    assert [[re.search(r"\(.+?\)|lacks columns", reason)[0] for reason in reasons] for reasons in marked] == [
        ["(UPDATE t)"], ["(DELETE FROM t)", "lacks columns"],
    ]  # fmt: skip
    assert "secret" not in str(marked)
    (words,) = [words for words in running.figures.warnings if "needs a copy" in words]
    assert words.startswith(f"{maria.name}.t needs a copy")
    assert "(DELETE FROM t)" in words


def test_a_value_that_cannot_be_decoded_concerns_its_row_alone(maria_edge, maria, interconnect):
    """M2: it stopped the source for good."""
    go_on_behind_what_cannot_be_decoded(maria_edge, maria, interconnect)


def test_a_wrong_value_in_a_key_is_not_the_empty_member_in_changes_and_copies(maria_edge, maria, interconnect):
    """N8: two rows became one."""
    maria.execute("create table k (kind enum('', 'a') primary key, note enum('', 'b'))")
    with maria_edge.running() as running:
        on_connection(
            maria, "set session sql_mode = ''", "insert into k values ('', ''), ('a', 'wrong'), ('wrong', 'b')"
        )
        arrive(interconnect, 2)
        copy(maria_edge, f"{maria.name}.k")
        arrive(interconnect, 4)
        (words,) = [words for words in running.figures.warnings if "needs a copy" in words]

    rows = [{"kind": "", "note": ""}, {"kind": "a", "note": ""}]
    assert [change["after"] for change in interconnect.changes] == rows * 2
    assert "column kind, of the key" in words


def test_commit_of_what_was_prepared_in_a_purged_file_stops_the_edge(own_maria, maria_edges, interconnect):
    on_connection(own_maria, "xa start 'a'", "insert into t values (1, 'x')", "xa end 'a'", "xa prepare 'a'")
    own_maria.execute("flush binary logs")
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()

    def purged():
        own_maria.execute("purge binary logs to 'binlog.000002'")
        return own_maria.execute("show binary logs")[0][0] == "binlog.000002"

    eventually(purged, saying="the first file is gone")
    own_maria.execute("xa commit 'a'")

    with edge.running() as running:
        error = running.ended()

    assert re.search(r"X'61',X'',1 commits at position .* begins with binlog.000002, does not have", error.message)
    assert "copy the tables again" in error.hint


def test_purged_binlog_is_named_with_the_gap(own_maria, maria_edges, interconnect):
    database = own_maria
    edge = maria_edges(database, interconnect.url)
    edge.init()
    database.execute("insert into t values (1, null)")
    database.execute("flush binary logs")

    def purged():
        # The server keeps a file until its storage engines no longer need it.
        database.execute("purge binary logs to 'binlog.000002'")
        return database.execute("show binary logs")[0][0] == "binlog.000002"

    eventually(purged, saying="the first file is gone")

    with edge.running() as running:
        error = running.ended()

    assert re.search(r"was purged: it begins with binlog.000002, and the changes from binlog.000001:\d+", error.message)
    assert "GTID 0-2-2" in error.message
    assert "copy the tables again" in error.hint


@pytest.mark.parametrize("writes", [0, 5])
def test_reset_binlog_is_noticed_even_when_it_has_grown_again(own_maria, maria_edges, interconnect, writes):
    database = own_maria
    edge = maria_edges(database, interconnect.url)
    edge.init()
    database.execute("reset master")
    for number in range(writes):
        database.execute(f"insert into t values ({number}, null)")

    with edge.running() as running:
        error = running.ended()

    assert "was reset" in error.message
    assert interconnect.changes == []


@pytest.mark.parametrize("writes", [0, 1])
def test_a_log_that_was_reset_and_is_as_the_former_one_is_noticed(own_maria, maria_edges, interconnect, writes):
    edge = maria_edges(own_maria, interconnect.url)
    reset_and_write_as_before(
        edge, own_maria, interconnect, reset="reset master", status="show master status", writes=writes
    )


def test_another_server_is_not_taken_for_the_former_one(own_maria, maria_edges, interconnect):
    database = own_maria
    edge = maria_edges(database, interconnect.url)
    edge.init()
    text = edge.checkpoint_file.read_text()
    edge.checkpoint_file.write_text(text.replace('"server_id": 2,', '"server_id": 3,'))

    with edge.running() as running:
        error = running.ended()

    assert "another one: its server_id is 2" in error.message
    assert "--adopt --new-epoch" in error.hint


def test_server_id_of_another_replica_is_refused(maria_edges, maria, interconnect, interconnects):
    first = maria_edges(maria, interconnect.url)
    second = maria_edges(maria, interconnects().url, server_id=first.server_id)
    first.init()
    second.init()

    with first.running() as running:
        maria.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
        with second.running(timeout_seconds=0.5) as other:
            error = other.ended()
        maria.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
        assert running.error is None

    assert f"server id {first.server_id} is used by another replica" in error.message


def test_an_edge_takes_over_from_one_whose_host_is_gone(maria_edges, maria, interconnect):
    """M10: the server keeps the thread of a connection that was never closed for a quarter of an hour."""
    first = maria_edges(maria, interconnect.url)
    first.init()
    first.start()
    maria.execute("insert into t values (1, 'a')")
    arrive(interconnect, 1)
    # Given a process that does nothing any more and closes nothing, and its disk at another host.
    first.process.send_signal(signal.SIGSTOP)
    second = maria_edges(maria, interconnect.url, server_id=first.server_id)
    shutil.copytree(first.folder / "state", second.folder / "state")

    with second.running(timeout_seconds=0.5):
        maria.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
        first.kill()
    assert ids(interconnect) == [1, 2]


def test_server_that_writes_no_fit_log_is_refused_with_the_sql_that_mends_it(own_maria, maria_edges, interconnect):
    own_maria.execute("set global binlog_format = 'MIXED', global binlog_row_image = 'MINIMAL'")
    own_maria.execute("set global binlog_row_metadata = 'NO_LOG'")
    edge = maria_edges(own_maria, interconnect.url)

    with pytest.raises(NeedsOperator) as caught:
        edge.init()
    for name, wanted in (("format", "ROW"), ("row_image", "FULL"), ("row_metadata", "FULL")):
        assert f"set global binlog_{name} = '{wanted}'" in caught.value.hint
        own_maria.execute(f"set global binlog_{name} = '{wanted}'")

    edge.init()
    own_maria.execute("set global binlog_row_metadata = 'MINIMAL'")
    with edge.running() as running:
        assert "binlog_row_metadata" in running.ended().message


def test_damaged_log_is_never_passed_on(own_maria, own_mariadb, maria_edges, interconnect):
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()
    own_maria.execute("insert into t values (1, 'a note that will be damaged')")
    file = own_mariadb.data / own_maria.execute("show master status")[0][0]
    own_maria.disconnect()
    own_mariadb.stop()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"will be damaged", b"WILL be damaged"))
    own_mariadb.start()

    with edge.running() as running:
        error = running.ended()

    assert file.read_bytes()[: len(whole)] != whole
    assert isinstance(error, CorruptInput)
    assert "the checksum of an event does not hold" in error.message
    assert interconnect.changes == []


def test_wrong_password_is_named_with_what_to_check(own_maria, maria_edges, interconnect):
    database = own_maria
    database.execute("create user someone identified by 'right'")
    edge = maria_edges(database, interconnect.url)
    edge.path.write_text(edge.path.read_text().replace('user = "root"', 'user = "someone"'))

    with pytest.raises(NeedsOperator, match="refuses user someone") as caught:
        edge.init()
    assert "password" in caught.value.hint


def test_promoted_replica_goes_on_in_a_new_epoch_after_the_last_transaction(
    mariadb, maria, own_mariadb, maria_edges, interconnect
):
    gtid = maria.execute("select @@gtid_binlog_pos")[0][0]
    own_mariadb.sql(
        f"set global gtid_slave_pos = '{gtid}'; create database {maria.name}; create table {maria.name}.t (id int primary key, "
        "note text); reset master; "
        f"set global gtid_slave_pos = '{gtid}'; change master to master_host='127.0.0.1', master_port={mariadb.port}, "
        "master_user='root', master_ssl=0, master_use_gtid=slave_pos; start slave"
    )
    edge = maria_edges(maria, interconnect.url)
    edge.init()
    with edge.running():
        maria.execute("insert into t values (1, 'a'), (2, 'b')")
        arrive(interconnect, 2)
    maria.execute("insert into t values (3, 'c')")
    on_connection(maria, "xa start 'over'", "insert into t values (5, 'e')", "xa end 'over'", "xa prepare 'over'")
    end = maria.execute("select @@gtid_binlog_pos")[0][0]
    eventually(lambda: own_mariadb.sql("select @@gtid_binlog_pos") == end, saying="the replica has everything")
    own_mariadb.sql("stop slave; reset slave all")
    edge.path.write_text(edge.path.read_text().replace(f"port = {mariadb.port}", f"port = {own_mariadb.port}"))
    with edge.running() as running:
        assert "another one" in running.ended().message

    edge.init(Adoption(None))

    with edge.running():
        own_mariadb.sql(f"insert into {maria.name}.t values (4, 'd'); xa commit 'over'")
        arrive(interconnect, 5)
    maria.execute("xa rollback 'over'")
    own_mariadb.sql(f"drop database {maria.name}")
    assert [change["after"]["id"] for change in interconnect.changes] == [1, 2, 3, 4, 5]
    assert interconnect.changes[-1]["source"]["server_id"] == 2


def test_a_source_is_retired_only_when_its_binlog_holds_nothing_unsent_of_its_tables(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'sent')")
        arrive(interconnect, 1)
    # another database's changes are nobody's concern here
    other = f"{maria.name}_other"
    for statement in (
        f"create database {other}",
        f"create table {other}.t (id int)",
        f"insert into {other}.t values (1)",
    ):
        maria.execute(statement)
    maria.execute(f"drop database {other}")
    said: list[str] = []
    assert not retire(maria_edge.config, said.append, lambda: False)
    assert not any("unsent" in line for line in said), said
    maria.execute("insert into t values (2, 'secret')")
    with pytest.raises(NeedsOperator, match=rf"the binlog holds a change of {maria.name}\.t at ") as refused:
        retire(maria_edge.config, said.append, lambda: True)
    assert "secret" not in refused.value.message
    assert maria_edge.checkpoint_file.exists()
    # when it is given up
    assert retire(maria_edge.config, said.append, lambda: True, force=True)
    assert not maria_edge.checkpoint_file.parent.exists()
