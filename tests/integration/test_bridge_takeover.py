"""Who has a source: the newest link of an edge, and of two bridges the newest; the former learns it."""

from tests.edge_double import Edge, Sender, message, send
from tests.kafka_reading import values
from tests.source_log import cut, log
from tests.waiting import eventually

pytest_plugins = ["tests.fix_bridge", "tests.fix_proxy"]


def test_the_newest_link_of_a_source_wins_and_the_former_is_told(kafka, topic, inside):
    name, source = topic(), "twice/bank"
    rows = log(source, 40)
    one, two = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    former = Sender(bridge.port, f"cdc/{source}", [message(one)])
    assert former.all()[0].state == "accepted"
    # when a second edge attaches, as after a half-open connection
    assert send(bridge.port, f"cdc/{source}", [message(two)])[0].state == "accepted"
    # then
    assert former.wait(lambda it: it.closed is not None)
    assert former.closed.condition == "amqp:link:stolen"
    former.close()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


def test_of_two_bridges_the_newest_has_the_source_and_nothing_is_doubled(kafka, topic, inside):
    name, source = topic(), "fought-for/bank"
    rows = log(source, 600)
    one, two, *_ = cut(source, rows, lambda: 200)
    first = inside(kafka.bootstrap, {source: [0]}, topic=name)
    first.expected = True
    assert send(first.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    # when
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    second.serves(source)
    (outcome,) = send(first.port, f"cdc/{source}", [message(two)])
    # then the first one takes nothing, says who has the source, sends the edge away, and stops
    assert outcome.state in {"released", "closed"}
    eventually(lambda: taken_by(first, source) == second.bridge.name)
    assert first.join(60)
    assert "other bridges have taken over all sources" in str(first.error)
    edge = Edge(second.port, source, rows, sizes=lambda: 33)
    edge.start()
    edge.finish()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


def test_an_edge_of_a_source_that_was_taken_over_is_told_where_it_is(kafka, topic, inside):
    name, source, other = topic(partitions=2), "moved/bank", "kept/bank"
    (batch,) = cut(source, log(source, 20), lambda: 20)
    first = inside(kafka.bootstrap, {source: [0], other: [1]}, topic=name)
    first.serves(source)
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    second.serves(source)
    send(first.port, f"cdc/{source}", [message(batch)])
    eventually(lambda: first.figures(source)["state"] == "taken over")
    # then its link is refused, and the bridge goes on with its other source
    (outcome,) = send(first.port, f"cdc/{source}", [message(batch)])
    assert (outcome.condition, outcome.description) == (
        "amqp:resource-locked",
        f"{source} is served by bridge {second.bridge.name}",
    )
    (batch,) = cut(other, log(other, 20), lambda: 20)
    assert send(first.port, f"cdc/{other}", [message(batch)])[0].state == "accepted"


def test_a_bridge_that_slept_through_a_take_over_does_not_take_it_for_a_gap(kafka, topic, inside):
    name, source = topic(), "asleep/bank"
    one, two, three = cut(source, log(source, 60), lambda: 20)
    first = inside(kafka.bootstrap, {source: [0]}, topic=name)
    first.expected = True
    assert send(first.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(second.port, f"cdc/{source}", [message(two)])[0].state == "accepted"
    # when the edge comes back to the first one, which has written nothing since and so has met no fence
    for _ in range(2):
        send(first.port, f"cdc/{source}", [message(three)])
    # then
    eventually(lambda: taken_by(first, source) == second.bridge.name)


def test_a_transaction_that_kafka_gave_up_on_is_not_taken_for_another_bridge(kafka, topic, inside):
    name, source = topic(), "slow/bank"
    rows = log(source, 60)
    one, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(bridge.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    # when the bridge's hold ends without anybody who says that the source is theirs, as when Kafka's time limit ends it
    fence(kafka, source)
    states = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(two)])]
    # then the bridge takes the source over again by itself
    assert states == ["released"]
    eventually(lambda: bridge.figures(source)["state"] == "serving")
    assert {outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(two), message(three)])} == {
        "accepted"
    }
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


def taken_by(bridge, source):
    """Return who has a source by a bridge's figures: they outlast its threads, and it stops once it has lost all its sources."""
    figures = bridge.bridge.roster.figures[source]
    return figures.reason.removeprefix("by bridge ") if figures.state == "taken over" else ""


def fence(kafka, source):
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "transactional.id": f"headrace.{source}"}
    )
    producer.init_transactions(60)
