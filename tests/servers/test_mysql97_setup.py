"""Setting up a source at a real MySQL 9.7: while it is written to, and what is refused."""

import json
import re
import threading
from contextlib import ExitStack, closing, contextmanager

import pytest

from edge.commands.lifecycle import retire
from edge.doctor.examine import examine
from edge.engine import Adoption
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import ids
from tests.edge.under_test import refused
from tests.rules.waiting import eventually

_WRITERS, _INITS = 8, 4


@contextmanager
def written_to(database):
    """Let several connections commit rows of `t`, each one after the other; yield what counts the rows."""
    ended = threading.Event()
    written = [0] * _WRITERS

    def write(number: int) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("insert into t values (%s, 'x')", [number + _WRITERS * written[number]])
                written[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    with ExitStack() as stack:
        for writer in writers:
            writer.start()
            stack.callback(writer.join)
        stack.callback(ended.set)
        eventually(lambda: all(written), saying="every connection writes")
        yield lambda: sum(written)


def test_a_source_that_is_set_up_while_eight_connections_write_starts_and_misses_nothing(
    maria_edges, mysql97, interconnects
):
    """M4: a transaction that is committing is in the log and in no GTID set yet."""
    sides = [interconnects() for _ in range(_INITS)]
    edges = [maria_edges(mysql97, side.url) for side in sides]
    for edge, side in zip(edges, sides, strict=True):
        with written_to(mysql97) as rows:
            edge.init()
            since = rows()
            eventually(lambda since=since: rows() > since + 50, saying="the writers go on")
        at_start = transactions(edge)
        with edge.running():
            last = mysql97.execute("select max(id) from t")[0][0] + 1
            mysql97.execute("insert into t values (%s, 'last')", [last])
            eventually(lambda side=side, last=last: last in ids(side), saying="the last row arrives")
        # Each transaction that is not in the set of the start has one row.
        assert len(set(ids(side))) == len(ids(side)) == transactions(edge) - at_start > 50
        mysql97.execute("delete from t")


def transactions(edge) -> int:
    """Return how many transactions the checkpoint's set has."""
    ranges = re.findall(r":(\d+)(?:-(\d+))?", edge.checkpoint["gtids"])
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)


def test_tagged_transactions_are_followed_whether_they_are_executed_before_or_after(maria_edges, mysql97, interconnect):
    """M16: one tagged GTID that was ever executed."""

    def write_tagged(row: int) -> None:
        with closing(mysql97.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("set gtid_next = 'AUTOMATIC:nightly'")
            cursor.execute("insert into t values (%s, 'tagged')", [row])

    write_tagged(1)
    write_tagged(2)
    edge = maria_edges(mysql97, interconnect.url)
    edge.init()
    assert ":nightly:1-" in edge.checkpoint["gtids"]
    for row in (3, 4):
        with edge.running():
            mysql97.execute("insert into t values (%s, 'plain')", [row])
            write_tagged(row + 10)
            eventually(lambda row=row: row + 10 in ids(interconnect), saying="the rows arrive")
    assert ids(interconnect) == [3, 13, 4, 14]
    assert [":nightly:" in each["source"]["gtid"] for each in interconnect.changes] == [False, True, False, True]
    with edge.running():
        missing = "select gtid_subtract(@@global.gtid_executed, %s)"
        eventually(
            lambda: mysql97.execute(missing, [edge.checkpoint["gtids"]]) == [("",)], saying="all is in the checkpoint"
        )


def test_a_server_that_lacks_what_was_acknowledged_is_refused_at_adoption_and_at_start(mysql97_edge):
    """M6: a replica that was promoted before it had everything."""
    former = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    checkpoint = mysql97_edge.checkpoint
    lacking = checkpoint | {"gtids": f"{former}:1-9,{checkpoint['gtids']}"}
    mysql97_edge.checkpoint_file.write_text(json.dumps(lacking))
    assert f"it lacks GTID {former}:1-9" in refused(mysql97_edge).message

    mysql97_edge.checkpoint_file.write_text(json.dumps(lacking | {"server": former}))
    with pytest.raises(NeedsOperator, match=f"it lacks GTID {former}:1-9"):
        mysql97_edge.init(Adoption(None))
    mysql97_edge.checkpoint_file.write_text(json.dumps(checkpoint | {"server": former}))
    mysql97_edge.init(Adoption(None))
    with mysql97_edge.running() as agent:
        eventually(lambda: agent.figures.database_connected, saying="the edge reads the log")


def test_a_database_that_the_log_leaves_out_is_refused_and_names_that_match_nothing_are_listed(
    maria_edges, mysql97, interconnect
):
    """M5: a copy of its tables would succeed, and no change would follow."""
    edge = maria_edges(mysql97, interconnect.url, databases=f'["{mysql97.name}", "unlogged"]')
    with pytest.raises(NeedsOperator, match="binlog_ignore_db = unlogged keeps unlogged out of it"):
        edge.init()
    results = {each.check: each for each in examine(edge.config)}
    assert results["coverage"].level == "wrong"

    edge = maria_edges(mysql97, interconnect.url, databases=f'["{mysql97.name}", "{mysql97.name.upper()}"]')
    line = f"there is no database {mysql97.name.upper()}, but {mysql97.name}: names are compared exactly"
    assert f"Nothing to capture yet: {line}" in edge.init()
    findings = list(examine(edge.config))
    assert [each.text for each in findings if each.check == "names"] == [line]
    assert [each.level for each in findings if each.check == "coverage"] == ["ok"]


def test_what_was_executed_before_the_set_up_is_not_unsent(maria_edges, mysql97, interconnect):
    """M4: a new checkpoint's place is ahead of what its set has."""
    mysql97.execute("insert into t values (1, 'before')")
    edge = maria_edges(mysql97, interconnect.url)
    edge.init()
    said: list[str] = []
    assert not retire(edge.config, said.append, lambda: False)
    assert not any("unsent" in line for line in said), said

    mysql97.execute("insert into t values (2, 'after')")
    with pytest.raises(NeedsOperator, match=rf"the binlog holds a change of {mysql97.name}\.t at "):
        retire(edge.config, said.append, lambda: True)
