"""`headrace edge retire`: a source is taken out of its server and its machine, and nothing unsent is given up by accident."""

import pytest

from edge.commands.lifecycle import retire
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


def left(database):
    """Return how many slots and publications a database has."""
    return database.execute(
        "select (select count(*) from pg_replication_slots where database = %s), (select count(*) from pg_publication)",
        [database.name],
    )[0]


def test_retiring_drops_slot_publication_and_state_once_everything_was_sent(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1, 'sent')")
        arrive(interconnect, 1)
        # when the edge runs
        said = edge.command("retire", "--yes")
        assert said.returncode == 3
        assert "in use by another edge" in said.stderr
    edge.let_go()
    # when something is not sent
    database.execute("insert into t values (2, 'not sent')")
    with pytest.raises(NeedsOperator, match=r"holds 1 transaction after .* that headquarters does not have") as refused:
        retire(edge.config, print, lambda: True)
    assert "not sent" not in refused.value.message.replace("was not sent", "")
    # when there is nobody to ask
    assert edge.command("retire").returncode == 2
    # when it is sent, and only looked at
    with edge.running():
        arrive(interconnect, 2)
    edge.let_go()
    database.execute("create table other (id int primary key)")
    looked = edge.command("retire", "--dry-run")
    assert (looked.returncode, "Nothing was removed." in looked.stdout) == (0, True)
    assert f"drop slot {database.name}" in looked.stdout
    assert (left(database), edge.checkpoint_file.exists()) == ((1, 1), True)
    # then
    done = edge.command("retire", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"Dropped slot {database.name}\nDropped publication {database.name}" in done.stdout
    assert f"headrace bridge forget {edge.source}" in done.stdout
    assert left(database) == (0, 0)
    assert not edge.checkpoint_file.parent.exists()
    # and the source can be made again
    edge.init()


def test_unsent_changes_are_given_up_only_by_force_and_a_cut_retirement_is_finished(edge, database):
    database.execute("insert into t values (1, 'lost')")
    # cut after the slot was dropped: the publication and the checkpoint are left
    said: list[str] = []

    class Cut(BaseException):
        pass

    def cut(line):
        said.append(line)
        if line.startswith("Dropped slot"):
            raise Cut

    with pytest.raises(Cut):
        retire(edge.config, cut, lambda: True, force=True)
    assert (left(database), edge.checkpoint_file.exists()) == ((0, 1), True)
    # when it is run again, without force: nothing can be sent from a slot that is gone
    assert retire(edge.config, said.append, lambda: True)
    assert (left(database), edge.checkpoint_file.exists()) == ((0, 0), False)


def test_a_publication_of_somebody_else_and_a_slot_that_is_read_are_left(edge, edges, database, interconnect):
    database.execute(f"alter publication {database.name} owner to postgres")
    database.execute("create role reader login replication; grant pg_read_all_data to reader")
    as_reader = edges(database, interconnect.url, user="reader")
    as_reader.checkpoint_file.parent.mkdir()
    as_reader.checkpoint_file.write_bytes(edge.checkpoint_file.read_bytes())
    try:
        with edge.running():
            eventually(edge.reading)
            with pytest.raises(NeedsOperator, match="is in use by process"):
                retire(as_reader.config, print, lambda: True)
        edge.let_go()
        said: list[str] = []
        assert retire(as_reader.config, said.append, lambda: True)
        assert f'Left publication {database.name} to its owner: drop publication "{database.name}";' in said
        assert left(database) == (0, 1)
    finally:
        database.execute("drop owned by reader; drop role reader")
