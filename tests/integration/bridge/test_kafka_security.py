"""Kafka over TLS with users and lists of what they may do: the lists in docs/security.md are enough, and nothing in them is
too much.
"""

import logging
import os
import threading
import time

import pytest
from confluent_kafka import Producer

from bridge.bridge import Bridge
from bridge.doctor import examine
from bridge.group.client import KafkaMember
from bridge.kafka.client import admin
from bridge.kafka.entries import read_topics, reading
from bridge.kafka.producer import KafkaProducer
from bridge.kafka.topics import Wanted, check, make
from bridge.model.chain import position_text
from bridge.model.ports import PositionCommit
from bridge.model.route import SourceRoute, routes
from bridge.positions.read import Positions
from bridge.requests.worker import AskingTopics
from bridge.routing.partitioner import share_out
from bridge.withheld.releaser import KafkaReader
from headrace import requests
from headrace.certificates.command import Authority
from headrace.configuration.bridge import BridgeFile, Interconnect, Kafka, Stream
from headrace.configuration.secret import Secret
from headrace.configuration.sections import Delivery, Requests, Topics
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from headrace.position import Position
from headrace.requests import new_request
from spark_jobs.kafka import client as lake_kafka
from spark_jobs.kafka import topics
from spark_jobs.kafka.client import Place
from tests.amqp.edge_double import Edge, message, send
from tests.bridge.security_lists import bridge_init, bridge_run, lake, of_tables, tenant
from tests.edge.source_log import Row, cut, log
from tests.integration.requests.deliveries import produce
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_secure_kafka import Allow

SOURCE = "secure/bank"


def file_of(connection, topic, tables=None):
    settings = {name: getattr(connection, name) for name in connection.__struct_fields__}
    return BridgeFile(
        kafka=Kafka(**settings),
        interconnect=Interconnect(listen="127.0.0.1:0"),
        streams={"bank": Stream(topic=topic, sources={SOURCE: [0]}, tables=tables or {})},
    )


def account(commit):
    """Return a row of a table, which says so."""
    at = Position(1_700_000_000, commit, 0)
    reported = (
        f'"source":{{"version":"1","name":"{SOURCE}","ts_ms":1,"schema":"public","table":"accounts","position":"{at}"}}'
    )
    return Row(at, b'{"id":1}', f'{{"after":{{"id":1}},{reported}}}'.encode())


def read_position(positions):
    """Return a list of the source's position or what is wrong with it; an empty one while the group's coordinator moves."""
    try:
        return [positions.read([SOURCE])[SOURCE]]
    except NotConnected as error:
        if "NOT_COORDINATOR" in error.message:
            return []
        return [error]
    except ReplicationError as error:
        return [error]


def commit_a_batch(connection, route, rows=(), prefix="headrace"):
    """Do what a running bridge does at Kafka."""
    (batch,) = cut(SOURCE, rows or log(SOURCE, 20), lambda: 20)
    client = admin(connection)
    check(client, {topic: Wanted(1, cleanup) for topic, cleanup in route.topics.items()})
    positions = Positions(connection, client, f"{prefix}.bridges", {SOURCE: route})
    member = KafkaMember(connection, client, f"{prefix}.bridges", "security", 6)
    try:
        (result,) = eventually(lambda: read_position(positions), saying="the group has a coordinator")
        if isinstance(result, ReplicationError):
            raise result
        member.join({route.topic}, *[lambda _places: None] * 3)
        eventually(lambda: member.poll(0.1) or member.metadata().is_usable, saying="the group has admitted the member")
        producer = KafkaProducer(connection, f"{prefix}.security.0", 1 << 20)
        producer.begin()
        for share in share_out(batch, 0, route.topic, route.partitions, route.tables):
            producer.produce(share)
        producer.flush(10)
        text = position_text(SOURCE, batch.last, "bridge")
        producer.commit([PositionCommit(*place, 20, text) for place in route.places], member.metadata(), 10)
    finally:
        positions.close()
        member.close(leave=True)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_bridge_that_may_do_what_is_listed_serves(secure_kafka, mechanism):
    topic = secure_kafka.topic()
    bridge = Bridge(file_of(secure_kafka.user(bridge_run(topic), mechanism=mechanism), topic))
    (batch,) = cut(SOURCE, log(SOURCE, 20), lambda: 20)
    thread = threading.Thread(target=bridge.run)
    thread.start()
    try:
        port = eventually(lambda: bridge.receiver.port)
        # The second time it is a known instance with another topic, for which Kafka has no assignment.
        eventually(lambda: bridge.figures()[SOURCE]["state"] == "serving", saying="the source is served")
        assert send(port, f"cdc/{SOURCE}", [message(batch)])[0].state == "accepted"
    finally:
        bridge.stop()
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("missing", [str(allow) for allow in bridge_run("TOPIC")])
def test_a_bridge_that_may_do_one_thing_less_says_that_it_needs_an_operator(secure_kafka, missing):
    topic = secure_kafka.topic()
    less = [allow for allow in bridge_run(topic) if str(allow).replace(topic, "TOPIC") != missing]
    assert len(less) == len(bridge_run(topic)) - 1
    connection = secure_kafka.user(less)

    with pytest.raises(ReplicationError) as caught:
        commit_a_batch(connection, SourceRoute(SOURCE, topic, (0,)))
    # A user who may not see a group gets no answer at all.
    assert isinstance(caught.value, NeedsOperator) or "must be allowed to read the group" in caught.value.hint
    assert caught.value.hint


def test_two_tenants_on_one_cluster_work_and_cannot_touch_each_other_o11(secure_kafka):
    tenants = {}
    for name in ("acme", "acme-two"):
        topic = secure_kafka.topic(f"{name}.bank")
        tenants[name] = secure_kafka.user(tenant(name)), SourceRoute(SOURCE, topic, (0,))
        # One source in both: positions are by prefix.
        commit_a_batch(*tenants[name], prefix=name)
        # K14: what is released of withheld records is deleted, and of no other topic
        withheld = secure_kafka.topic(f"{name}.bank.withheld")
        reader = KafkaReader(tenants[name][0], f"{name}.bridges", admin(tenants[name][0]))
        reader.delete((withheld, 0), 0)
        with pytest.raises(NeedsOperator) as refused:
            reader.delete((topic, 0), 0)
        assert "to delete (--operation Delete) records of the topic" in refused.value.hint
    for own, other in (("acme", "acme-two"), ("acme-two", "acme")):
        connection, route = tenants[own][0], tenants[other][1]
        # neither the other's topic
        with pytest.raises(NeedsOperator, match=r"cannot read the topics|TOPIC_AUTHORIZATION|is not in Kafka"):
            commit_a_batch(connection, route, prefix=own)
        # nor its positions: no answer at all
        with pytest.raises(ReplicationError):
            read_entries_of(connection, f"{other}.bridges", tenants[own][1].topic)
        # nor its transactional ids, which would fence its bridges
        with pytest.raises(NeedsOperator, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            KafkaProducer(connection, f"{other}.security.0", 1 << 20)


@pytest.mark.long
def test_a_tenant_above_its_quota_waits_and_the_others_do_not(secure_kafka):
    # Given two tenants with a bridge each, one of which may write the least that docs/tenants.md allows.
    bridges = {}
    for name in ("limited", "free"):
        topic = secure_kafka.topic(f"{name}.bank")
        connection = secure_kafka.user(tenant(name), prefix=name)
        bridges[name] = Bridge(file_of(connection, topic))
        if name == "limited":
            secure_kafka.limit(connection.user, 2_000_000)
    threads = [threading.Thread(target=bridge.run) for bridge in bridges.values()]
    for thread in threads:
        thread.start()
    # When both write 15 MB that nothing compresses.
    rows = [row._replace(value=b'{"x":"%s"}' % os.urandom(15_000).hex().encode()) for row in log(SOURCE, 500)]
    edges = {}
    try:
        for name, bridge in bridges.items():
            port = eventually(lambda bridge=bridge: bridge.receiver.port)
            edges[name] = Edge(port, SOURCE, rows, sizes=lambda: 3)
            edges[name].start()
        # Then the one without a quota is through while the other still waits; nothing of either is lost or repeated.
        edges["free"].join(90)
        assert edges["free"].accepted == len(rows)
        assert edges["limited"].accepted < len(rows)
        edges["limited"].join(90)
        for name in bridges:
            records = read_committed(secure_kafka.server.bootstrap, f"{name}.bank")
            assert [record.value for record in records] == [row.value for row in rows]
    finally:
        for bridge in bridges.values():
            bridge.stop()
        for thread in threads:
            thread.join(60)


def read_entries_of(connection, group, topic):
    with reading(connection, group) as client:
        return read_topics(client, group, [topic])


@pytest.mark.long
def test_making_topics_takes_what_is_listed_and_no_less(secure_kafka):
    allowed = bridge_init("made-under-rules")
    made = file_of(secure_kafka.user(allowed), "made-under-rules")
    wider = BridgeFile(
        kafka=made.kafka,
        interconnect=made.interconnect,
        streams={"bank": Stream(topic="made-under-rules", sources={SOURCE: [1]})},
    )

    def less(operation):
        return admin(secure_kafka.user([allow for allow in allowed if allow.operation != operation]))

    with pytest.raises(ReplicationError):
        make(less("create"), made)
    assert [each.what for each in make(admin(made.kafka), made)] == ["created"]
    with pytest.raises(NeedsOperator):
        make(less("describe_configs"), made)
    with pytest.raises(ReplicationError):
        make(less("alter"), wider)
    assert [each.what for each in make(admin(made.kafka), wider)] == ["grown from 1"]


@pytest.mark.long
def test_topics_for_tables_take_the_same_lists_for_their_common_beginning(secure_kafka):
    # given a stream with a topic for a table, for which a user's lists hold by its beginning
    topic = secure_kafka.topic()
    table = {"public.accounts": "delete"}
    own, to_make = bridge_run(topic), bridge_init(topic)
    wider = of_tables(own)
    maker = secure_kafka.user(to_make + of_tables(to_make))
    assert [each.what for each in make(admin(maker), file_of(maker, topic, table))] == ["already there", "created"]

    def commit(allowed):
        connection = secure_kafka.user(allowed)
        (home,) = routes(file_of(connection, topic, table)).values()

        def reported():
            try:
                commit_a_batch(connection, home, [account(30)])
            except NotConnected:
                # A group that was made just now may have no coordinator for a moment: a bridge tries again.
                return None
            except NeedsOperator as error:
                return error
            return "committed"

        if isinstance(result := eventually(reported), NeedsOperator):
            raise result

    # and a record from which the position is read, as nobody has committed one
    producer = Producer({"bootstrap.servers": secure_kafka.server.bootstrap, "log_level": 0})
    producer.produce(f"{topic}.public.accounts", account(20).value, account(20).key, 0)
    assert producer.flush(60) == 0
    # when one line of it is missing, that for reading first, then an operator is called
    for missing in sorted(wider, key=lambda allow: allow.operation != "read"):
        with pytest.raises(NeedsOperator):
            commit(own + [each for each in wider if each != missing])
    # and with all of them it serves
    commit(own + wider)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("another password", "invalid credentials"),
        ("another authority", "certificate could not be verified"),
        ("another name", "certificate could not be verified"),
    ],
)
def test_who_is_not_trusted_is_told_why(secure_kafka, tmp_path, changes, says):
    # Nobody answers who is not trusted: the client waits for as long as it may.
    password = tmp_path / "password"
    password.write_text("not the secret")
    given = {
        "another password": {"password": Secret(f"file:{password}")},
        "another authority": {"authority": Authority(tmp_path / "theirs").certificate_file},
        "another name": {"bootstrap": f"127.0.0.1:{secure_kafka.port}"},
    }[changes]
    connection = secure_kafka.user([], **given)
    for asked in (
        lambda: check(admin(connection), {"any": Wanted(1)}, timeout=3),
        lambda: lake_kafka.describe(connection, "any", timeout=3),
    ):
        assert says in eventually(lambda asked=asked: refused(asked), saying=says)


def refused(asked):
    """Return the error that an untrusted user gets; empty while nobody has answered in time."""
    try:
        asked()
    except NeedsOperator as error:
        return error.message
    except NotConnected:
        return ""
    raise AssertionError("it was answered")


def test_what_a_bridge_may_do_is_enough_for_its_doctor(secure_kafka):
    topic = secure_kafka.topic()
    file = file_of(secure_kafka.user(bridge_run(topic)), topic)

    def found():
        findings = list(examine(file))
        # A bridge of a test before is a member of the group until its session ends.
        assert [each.text for each in findings if each.level == "wrong"] == []
        return findings

    findings = eventually(found)
    (settings,) = [each for each in findings if each.check == "Kafka settings"]
    assert "DescribeConfigs on the cluster" in settings.fix


def test_the_lake_asks_and_mirrors_with_what_is_listed_and_no_less(secure_kafka, caplog):
    topic = secure_kafka.topic()
    listed = lake(topic, "bank")
    allowed = secure_kafka.user(listed)
    assert lake_kafka.describe(allowed, topic).ends == {0: 0}
    group = "headrace.lake.bank"

    def mirrored():
        caplog.clear()
        topics.mirror(allowed, group, {Place(topic, 0): 0})
        return not caplog.messages

    # A broker that has just started still loads what its groups hold.
    eventually(mirrored)
    # when either is missing
    for missing in listed:
        less = secure_kafka.user([allow for allow in listed if allow != missing])
        caplog.clear()
        topics.mirror(less, group, {Place(topic, 0): 0})
        assert "could not be mirrored" in caplog.text
        if missing.kind == "topic":
            with pytest.raises(NeedsOperator, match=topic):
                lake_kafka.describe(less, topic)


class Renewed:
    """A bridge with a source, requests and a delivery, an edge that sends more and more, and who asks whether all of it works."""

    def __init__(self, kafka, connection):
        self.kafka, self.topic, self.alerts = kafka, kafka.topic(), kafka.topic()
        self.topics = Topics(kafka.topic(), kafka.topic())
        kafka.topic(f"{self.alerts}.dead-letters")
        file = file_of(connection, self.topic)
        self.bridge = Bridge(
            BridgeFile(
                kafka=file.kafka,
                interconnect=file.interconnect,
                streams=file.streams,
                requests=Requests(topic=self.topics.requests, answers_topic=self.topics.answers),
                deliveries={"alerts": Delivery(topic=self.alerts, address="alerts/{region}")},
            )
        )
        self.thread = threading.Thread(target=self.bridge.run)
        self.thread.start()
        port = eventually(lambda: self.bridge.receiver.port, saying="the bridge listens")
        self.rows = log(SOURCE, 7000)
        self.edge = Edge(port, SOURCE, self.rows, sizes=lambda: 5)
        self.edge.upto = 0
        self.edge.start()

    def send_more(self):
        """Have the edge send a thousand rows more, and return while it does."""
        before = self.edge.accepted
        self.edge.upto += 1000
        eventually(lambda: self.edge.accepted > before, saying="the source is served")

    def works(self):
        """Have every client of the bridge used: it sends, asks and is answered, reads and writes deliveries."""
        eventually(lambda: self.edge.accepted == self.edge.upto, 120, saying="all that was sent is accepted")
        wire = AskingTopics(Kafka(bootstrap=self.kafka.server.bootstrap), self.topics)
        with pytest.raises(NotConnected, match="the edge did not receive the request in time"):
            requests.ask(wire, new_request(SOURCE, "status", "ann", 3))
        wire.close()
        dead = len(self.dead_letters())
        # Nobody can deliver what has no key.
        produce(self.kafka.server.bootstrap, self.alerts, [(None, b"1")])
        eventually(lambda: len(self.dead_letters()) > dead, saying="what cannot be delivered is a dead letter")
        assert self.topic in self.bridge._admin.list_topics(timeout=30).topics

    def dead_letters(self):
        return read_committed(self.kafka.server.bootstrap, f"{self.alerts}.dead-letters")

    def stop(self):
        self.edge.stop()
        self.bridge.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.mark.long
@pytest.mark.parametrize("what", ["certificate", "password", "both, at three brokers that restart one by one"])
def test_what_a_bridge_has_to_show_is_changed_under_load_and_the_former_ends_without_a_restart_of_the_bridge(
    request, what, caplog
):
    """K1: all sources stopped for good once the certificate with which the bridge started had ended and a broker restarted."""
    everything = [Allow(kind, "*", "all") for kind in ("topic", "group", "transactional_id")]
    both, by_certificate, by_password = what.startswith("both"), what != "password", what != "certificate"
    kafka = request.getfixturevalue("secure_cluster" if both else "secure_kafka")
    # The handshakes of a bridge that starts have to be over by then, on a busy machine too.
    seconds = 60 if both else 30
    connection = kafka.by_certificate(seconds) if by_certificate else None
    ends = time.time() + seconds
    if by_password:
        shown = {} if connection is None else {"certificate": connection.certificate, "key": connection.key}
        connection = kafka.user(everything, **shown)
    bridge = Renewed(kafka, connection)
    try:
        bridge.send_more()
        bridge.works()
        # when the former one is replaced while the edge sends, and is worth nothing any more
        bridge.send_more()
        with caplog.at_level(logging.INFO):
            if by_certificate:
                kafka.by_certificate(86_400)
            if by_password:
                kafka.change_password(connection)
            eventually(lambda: "certificates or password have changed" in caplog.text, saying="the change is noticed")
        bridge.send_more()
        eventually(lambda: not by_certificate or time.time() > ends + 1, saying="the former certificate has ended")
        # and the brokers end all connections
        kafka.restart(bridge.send_more)
        bridge.send_more()
        # then all clients work, and what was sent is there once
        bridge.works()
    finally:
        bridge.stop()
    values = [record.value for record in read_committed(kafka.server.bootstrap, bridge.topic)]
    assert values == [row.value for row in bridge.rows[: bridge.edge.upto]]
    assert bridge.edge.upto == (7000 if both else 4000)


@pytest.mark.long
def test_what_a_bridge_may_do_is_taken_from_it_line_by_line_while_it_runs_and_given_back(secure_kafka):
    # given a bridge that serves with what docs/security.md lists
    topic = secure_kafka.topic()
    listed = bridge_run(topic)
    connection = secure_kafka.user(listed)
    bridge = Bridge(file_of(connection, topic))
    thread = threading.Thread(target=bridge.run)
    thread.start()
    rows = log(SOURCE, 100 * (len(listed) + 1))
    edge = Edge(eventually(lambda: bridge.receiver.port), SOURCE, rows, sizes=lambda: 5)
    edge.upto = 100
    edge.start()

    def is_accepted():
        return edge.accepted == edge.upto

    def is_named():
        seen = f"{bridge.registry.states[SOURCE].figures.reason} {bridge._trouble()}"
        return "AUTHORIZATION_FAILED" in seen or "is not allowed to" in seen

    try:
        eventually(is_accepted, saying="the source is served")
        for line in listed:
            # when a line is taken away
            secure_kafka.revoke(connection.user, line)
            edge.upto += 100
            # then the bridge goes on, or says what Kafka does not allow it
            eventually(lambda: is_accepted() or is_named(), saying=f"it is seen: {line}")
            # and goes on by itself once it has the line again
            secure_kafka.grant(connection.user, line)
            eventually(is_accepted, 150, saying=f"{line} is given back")
            assert thread.is_alive()
    finally:
        edge.stop()
        bridge.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert [record.value for record in read_committed(secure_kafka.server.bootstrap, topic)] == [
        row.value for row in rows
    ]
