"""Sources of one bridge whose edges go wrong, each in its own way, hold up no other one."""

from tests.amqp.edge_double import Edge, Sender, message
from tests.edge.source_log import cut, log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def test_sources_that_are_poisoned_blocked_or_silent_hold_up_no_other(kafka, topic, inside):
    # given four sources, of which one is as it should be
    name = topic(partitions=4)
    good, poisoned, blocked, silent = (f"{kind}/bank" for kind in ("good", "poisoned", "blocked", "silent"))
    bridge = inside(kafka.bootstrap, {good: [0], poisoned: [1], blocked: [2], silent: [3]}, topic=name, credit=8)
    rows = log(good, 4_000)
    edge = Edge(bridge.port, good, rows, sizes=lambda: 20)
    # one edge goes on in the middle of a log that nobody has the beginning of: every batch comes back, and goes out again
    lost = Edge(bridge.port, blocked, log(blocked, 4_000), sizes=lambda: 20)
    lost.accepted = 2_000
    # one sends nothing but what cannot be decoded, and one takes its credit and says no more
    wrong = [message(each, body=b"x" * 1000) for each in cut(poisoned, log(poisoned, 2_000), lambda: 10)]
    strangers = [
        Sender(bridge.port, f"cdc/{poisoned}", wrong, container_id="poisoned"),
        Sender(bridge.port, f"cdc/{silent}", container_id="silent"),
    ]
    try:
        eventually(lambda: bridge.figures(poisoned)["rejected"] > 0)
        lost.start()
        edge.start()
        eventually(lambda: bridge.figures(blocked)["released"] > 0)
        # then the good one arrives whole, while the others are at it
        edge.finish()
        released = bridge.figures(blocked)["released"]
        eventually(lambda: bridge.figures(blocked)["released"] > released, saying="the blocked one is still at it")
        assert strangers[0].closed is None
    finally:
        lost.stop()
        for each in strangers:
            each.close()
    records = read_committed(kafka.bootstrap, name)
    assert [record.value for record in records] == [row.value for row in rows]
    assert {record.partition for record in records} == {0}
