"""SIGHUP: a running bridge takes over sources that come into its file or leave it, and touches no other one."""

import signal

from bridge.kafka.client import NewPartitions, admin
from headrace.configuration.kafka import KafkaConnection
from tests.amqp.edge_double import Edge
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

KEPT, LEAVING, COMING, LATE = "reload/kept", "reload/leaving", "reload/coming", "reload/late"


def test_sources_are_added_and_removed_under_load_without_touching_others_or_losing_a_record(
    kafka, topic, outside, tmp_path
):
    name = topic(partitions=3)
    rows = {source: log(source, 3_000) for source in (KEPT, LEAVING, COMING, LATE)}
    path = bridge_file(tmp_path, kafka.bootstrap, {KEPT: [0], LEAVING: [1]}, topic=name)
    bridge = outside(path=path)

    def edge(source, upto):
        made = Edge(bridge.port, source, rows[source], sizes=lambda: 20)
        made.upto = upto
        made.start()
        return made

    def some(*edges):
        seen = [each.accepted for each in edges]
        eventually(
            lambda: all(
                each.accepted > before or each.accepted == each.upto for each, before in zip(edges, seen, strict=True)
            )
        )

    def reload(sources, said, **settings):
        others = bridge.said().count("reload: ")
        text = bridge_file(tmp_path, kafka.bootstrap, sources, topic=name, **settings).read_text()
        path.write_text(text)
        bridge.process.send_signal(signal.SIGHUP)
        eventually(lambda: bridge.said().count("reload: ") > others, saying="the file is read again")
        assert said in bridge.said().rpartition("reload: ")[2]

    # Given two sources in the middle of their logs, of which one has more to come
    kept, leaving = edge(KEPT, 1_000), edge(LEAVING, 2_000)
    some(kept, leaving)
    # when one leaves the file and another one comes
    reload({KEPT: [0], COMING: [2]}, f"1 sources added ({COMING}), 1 removed ({LEAVING})")
    coming = edge(COMING, 1_000)
    some(coming)
    eventually(lambda: leaving.link.closed is not None and leaving.link.closed.condition == "amqp:not-found")
    # when the file changes what a running bridge cannot, then nothing of it is taken over
    reload({COMING: [2], LEAVING: [1]}, "cannot change interconnect.credit", credit=63)
    kept.upto = coming.upto = 2_000
    some(kept, coming)
    # when a topic is not ready, then nothing is taken over either
    reload({KEPT: [0], COMING: [2], LATE: [3]}, "has 3 partitions, its sources own 4")
    # then the sources that stayed never noticed any of it
    assert (kept.went_back, coming.went_back, kept.link.closed, coming.link.closed) == (0, 0, None, None)
    # when the partition is made, and the one that left comes again
    client = admin(KafkaConnection(bootstrap=kafka.bootstrap))
    client.create_partitions([NewPartitions(name, 4)])[name].result(30)
    # The controller answers before the broker knows.
    eventually(lambda: len(client.list_topics(name, timeout=10).topics[name].partitions) == 4)
    reload({KEPT: [0], COMING: [2], LEAVING: [1], LATE: [3]}, f"2 sources added ({LATE}, {LEAVING}), 0 removed")
    late = edge(LATE, 1_000)
    kept.upto = coming.upto = 2_500
    some(kept, coming, late)
    print(f"--- went back: {kept.went_back}, {coming.went_back}")
    # then every record is there once, in order
    for each in (kept, coming, leaving, late):
        each.finish()
    records = read_committed(kafka.bootstrap, name)
    for number, source in enumerate((KEPT, LEAVING, COMING, LATE)):
        values = [record.value for record in records if record.partition == number]
        assert values == [row.value for row in rows[source]], source
    assert bridge.terminate() == 0
