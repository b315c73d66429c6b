"""A lane: one transaction for many sources; after an error nothing is trusted, and only suspects are isolated."""

import pytest

from bridge.lanes import part
from bridge.model.chain import NOTHING
from bridge.model.delivery import Accept, Delivery, Release
from bridge.model.ports import Fenced, OldGeneration, PartitionsFailed
from bridge.routing.withheld_records import Divided
from headrace.batch import CONTENT_ENCODING, Batch, encode
from headrace.errors import NeedsOperator, NotConnected, Retryable
from headrace.position import Position
from tests.edge.source_log import cut, log
from tests.unit.bridge.kafka_double import TOPIC, BridgeParts, metadata

ONE, TWO, THREE = SOURCES = "a/one", "a/two", "a/three"


@pytest.fixture
def parts():
    bridge_parts = BridgeParts(*SOURCES)
    bridge_parts.registry.assigned(SOURCES, metadata())
    bridge_parts.recover()
    bridge_parts.turn = lambda: [lane.turn(0) for lane in bridge_parts.lanes]
    bridge_parts.turn()
    bridge_parts.kafka.transactions.clear()
    return bridge_parts


def put(parts, source, ticket, rows=20, sizes=20, which=0):
    """Put the batch `which` of a source's log into its inbox."""
    batch = cut(source, log(source, rows), lambda: sizes)[which]
    properties, body = encode(batch)
    parts.session(source).inbox.put(Delivery(ticket, 1, properties, CONTENT_ENCODING, body))
    return batch


def test_sources_that_are_ready_share_a_transaction_with_their_positions_and_the_generation(parts):
    for number, source in enumerate(SOURCES):
        put(parts, source, number)
    parts.turn()
    ((shares, positions, group),) = parts.kafka.transactions
    assert [(share.topic, share.partition, len(share.values)) for share in shares] == [(TOPIC, n, 20) for n in range(3)]
    assert [(each.partition, each.offset, each.metadata.split()[3]) for each in positions] == [
        (number, 20, source) for number, source in enumerate(SOURCES)
    ]
    assert group.generation == 1
    assert parts.deliverer.outcomes == dict.fromkeys(range(3), Accept())


def test_a_lane_counts_what_its_transactions_hold(parts):
    lane = parts.lanes[0]
    before = lane.metrics.transactions, lane.metrics.sources, sum(lane.metrics.commit_seconds.counts)
    for number, source in enumerate(SOURCES):
        put(parts, source, number)
    parts.turn()
    after = lane.metrics
    assert (after.transactions, after.sources, sum(after.commit_seconds.counts)) == (
        before[0] + 1,
        before[1] + 3,
        before[2] + 1,
    )
    assert (after.records, after.partitions, after.aborted) == (60, 3, 0)
    put(parts, ONE, 9, rows=40, which=1)
    parts.kafka.fail("commit", OldGeneration("old"))
    lane.turn(0)
    assert (lane.metrics.transactions, lane.metrics.aborted) == (before[0] + 1, 1)


def test_the_first_transaction_of_sources_commits_their_positions_without_records():
    parts = BridgeParts(*SOURCES)
    parts.registry.assigned(SOURCES, metadata())
    parts.recover()
    parts.lanes[0].turn(0)
    ((shares, positions, _),) = parts.kafka.transactions
    assert (shares, len(positions)) == ([], 3)
    assert set(parts.deliverer.granted) == set(SOURCES)


def test_repeats_and_gaps_are_settled_without_a_transaction(parts):
    put(parts, ONE, 1)
    parts.turn()
    put(parts, ONE, 2)
    put(parts, TWO, 3, sizes=5, which=2)
    parts.turn()
    assert len(parts.kafka.transactions) == 1
    assert parts.deliverer.outcomes[2] == Accept()
    assert isinstance(parts.deliverer.outcomes[3], Release)


@pytest.mark.parametrize("method", ["begin", "produce", "flush", "commit"])
@pytest.mark.parametrize("error", [OldGeneration("old"), Retryable("try again")])
def test_an_aborted_transaction_releases_all_and_positions_are_read_again(parts, method, error):
    parts.kafka.fail(method, error)
    for number, source in enumerate(SOURCES):
        put(parts, source, number)
    parts.turn()
    # then nothing is accepted or committed, and no source has credit before its position was read
    assert parts.kafka.transactions == []
    assert set(parts.deliverer.outcomes.values()) <= {Release()}
    recovered = parts.recover()
    assert recovered
    for source in recovered:
        put(parts, source, 10 + SOURCES.index(source))
    for _ in range(6):
        parts.turn()
    assert {ticket for ticket, outcome in parts.deliverer.outcomes.items() if outcome == Accept()} >= {
        10 + SOURCES.index(source) for source in recovered
    }


@pytest.mark.parametrize("error", [NotConnected("no answer"), Fenced("fenced")])
def test_after_a_commit_in_doubt_positions_are_read_only_once_the_transactional_id_is_ours_again(parts, error):
    parts.kafka.fail("commit", error)
    parts.kafka.fail("open", NotConnected("still none"))
    put(parts, ONE, 1)
    lane, before = parts.lanes[0], parts.kafka.discarded
    lane.turn(0)
    assert (parts.kafka.discarded - before, parts.recovering, lane.state) == (1, {}, "waiting for Kafka")
    lane._open_at = 0
    lane.turn(0)
    assert parts.recovering == {}
    lane._open_at = 0
    lane.turn(0)
    assert (set(parts.recovering), lane.state) == ({ONE}, "serving")
    assert parts.kafka.opened.count("b.0") == 2


def test_a_partition_that_kafka_refuses_sets_its_source_aside_and_the_others_go_on(parts):
    parts.kafka.fail("flush", PartitionsFailed({(TOPIC, 1): NeedsOperator("topic is not there")}))
    for number, source in enumerate(SOURCES):
        put(parts, source, number)
    parts.lanes[0].turn(0)
    states = parts.registry.states
    assert (states[TWO].figures.state, states[TWO].figures.reason) == ("needs an operator", "topic is not there")
    assert {source: pause > 0 for source, (_, pause) in parts.recovering.items()} == {
        ONE: False,
        TWO: True,
        THREE: False,
    }
    parts.recover()
    # when all come again, then the lane takes those that can be written, and the isolated one the other, alone
    for number, source in enumerate(SOURCES):
        put(parts, source, 10 + number)
    parts.lanes[0].turn(0)
    assert [outcome for ticket, outcome in sorted(parts.deliverer.outcomes.items()) if ticket in {10, 12}] == [
        Accept()
    ] * 2
    assert 11 not in parts.deliverer.outcomes
    parts.kafka.fail("flush", PartitionsFailed({(TOPIC, 1): NeedsOperator("topic is not there")}))
    for _ in ("it connects", "it commits"):
        parts.lanes[1].turn(0)
    assert (parts.deliverer.outcomes[11], states[TWO].isolated) == (Release(), True)
    # when it can be written again, then it is as the others
    parts.recover()
    put(parts, TWO, 21)
    parts.lanes[1].turn(0)
    assert (parts.deliverer.outcomes[21], states[TWO].isolated, states[TWO].figures.state) == (
        Accept(),
        False,
        "serving",
    )


def test_an_error_that_names_no_partition_is_traced_to_its_source_by_isolating_all_once(parts):
    parts.kafka.fail("commit", NeedsOperator("not allowed"))
    for number, source in enumerate(SOURCES):
        put(parts, source, number)
    parts.lanes[0].turn(0)
    parts.recover()
    for number, source in enumerate(SOURCES):
        put(parts, source, 10 + number)
    # the first goes behind the others while the lane connects
    parts.kafka.fail("commit", NeedsOperator("not allowed"))
    for _ in range(4):
        parts.lanes[1].turn(0)
    isolated = {source: state.isolated for source, state in parts.registry.states.items()}
    assert isolated == {ONE: False, TWO: True, THREE: False}
    assert all(len(shares) <= 1 for shares, _, _ in parts.kafka.transactions)


def test_a_source_that_is_taken_away_in_the_middle_is_not_committed_e1(parts):
    put(parts, ONE, 1)
    put(parts, TWO, 2)
    parts.kafka.fail("flush", lambda _producer: parts.registry.lost([ONE]))
    parts.lanes[0].turn(0)
    assert parts.kafka.transactions == []
    assert parts.kafka.aborted == 1
    # then the one that is left goes on, and nothing is read for the other
    assert set(parts.recovering) == {TWO}
    assert parts.deliverer.refused == {ONE: ("amqp:link:redirect", f"{ONE} may be served by another bridge")}


def test_a_late_commit_of_a_former_session_touches_neither_inbox_nor_credit_of_its_successor_e2(parts):
    put(parts, ONE, 1)

    def come_back(_producer):
        parts.registry.lost([ONE])
        parts.registry.assigned([ONE], metadata(3))
        parts.recover()
        put(parts, ONE, 2)

    parts.kafka.fail("commit", come_back)
    parts.lanes[0].turn(0)
    successor = parts.session(ONE)
    assert parts.deliverer.granted[ONE] is successor
    assert len(successor.inbox) == 1


def test_a_lane_that_hangs_is_given_up_and_what_its_call_returns_later_is_nobodys(parts):
    put(parts, ONE, 1)
    given_up = []
    parts.kafka.fail("commit", lambda _producer: given_up.append(parts.lanes[0].give_up()))
    parts.lanes[0].turn(0)
    (successor,) = given_up
    assert parts.deliverer.outcomes == {1: Release()}
    assert parts.recovering == {}
    successor.turn(0)
    assert (set(parts.recovering), parts.kafka.opened.count("b.0")) == ({ONE}, 2)


def test_a_batch_for_which_memory_lacks_in_the_last_moment_moves_no_position(parts, monkeypatch):
    """The position after it was committed without its records, and the edge never sent them again."""
    batch = put(parts, ONE, 1)

    class Lacking:
        values = batch.values

        @property
        def topic(self):
            raise MemoryError

    monkeypatch.setattr(part, "divide", lambda *_: Divided([Lacking()], NOTHING, {}))
    monkeypatch.setattr(parts.lanes[0]._limits, "exceeded_by", lambda _share: False)
    parts.lanes[0].turn(0)
    assert (parts.deliverer.outcomes, parts.kafka.transactions) == ({1: Release(1.0)}, [])
    monkeypatch.undo()
    put(parts, ONE, 2)
    parts.lanes[0].turn(0)
    assert (parts.deliverer.outcomes[2], parts.kafka.values(0)) == (Accept(), batch.values)


def test_revoked_sources_finish_what_is_open_and_the_rest_goes_back(parts):
    put(parts, ONE, 1)
    parts.lanes[0].turn(0)
    put(parts, ONE, 2, rows=40, which=1)
    parts.registry.revoked([ONE], 0.0)
    assert parts.deliverer.outcomes == {1: Accept(), 2: Release()}
    assert ONE not in parts.deliverer.granted
    assert parts.registry.states[ONE].figures.state == "elsewhere"
    parts.turn()
    assert len(parts.kafka.transactions) == 1


def test_a_record_larger_than_its_topic_takes_is_rejected_and_those_before_it_pass(parts, monkeypatch):
    limits = parts.lanes[0]._limits
    put(parts, ONE, 1, rows=40)
    put(parts, ONE, 2, rows=40, which=1)
    verdicts = iter([False, True])
    monkeypatch.setattr(limits, "exceeded_by", lambda _share: next(verdicts))
    monkeypatch.setattr(limits, "refresh", lambda _topics: False)
    parts.lanes[0].turn(0)
    assert parts.deliverer.outcomes[1] == Accept()
    assert parts.deliverer.outcomes[2].condition == "headrace:record-too-large"


def test_positions_of_idle_sources_are_committed_again(parts):
    parts.registry.recommit(0.0)
    parts.turn()
    ((shares, positions, _),) = parts.kafka.transactions
    assert (shares, len(positions)) == ([], 3)


def test_an_empty_batch_that_starts_an_epoch_moves_the_position_without_records(parts):
    """An edge without changes sends one; the lane wrote its empty share, and the bridge ended."""
    start = Position.start(7)
    batch = Batch(source=ONE, follows=start, first=start, last=start, segments=[], keys=[], values=[])
    properties, body = encode(batch)
    parts.session(ONE).inbox.put(Delivery(1, 1, properties, CONTENT_ENCODING, body))
    parts.turn()
    ((shares, positions, _),) = parts.kafka.transactions
    assert (shares, [each.metadata.split()[1] for each in positions]) == ([], [str(start)])
    assert parts.deliverer.outcomes == {1: Accept()}
    # The next one is a repeat, and needs no transaction.
    parts.session(ONE).inbox.put(Delivery(2, 1, properties, CONTENT_ENCODING, body))
    parts.turn()
    assert len(parts.kafka.transactions) == 1
    assert parts.deliverer.outcomes[2] == Accept()


def test_a_lane_lets_several_sources_gather_before_it_takes_them(parts, monkeypatch):
    """200 sources with two batches a second each made transactions of one or two, which filled both processors."""
    lane = parts.lanes[0]
    paused = []
    for ticket, source in enumerate(SOURCES):
        put(parts, source, ticket)
    lane.turn(0)
    # given that Kafka took a while for the last one
    monkeypatch.setattr(lane._pacing, "_clock", lambda: 100.0)
    lane._pacing.note_end(SOURCES, 0.01)

    def gather():
        paused.append(lane._pacing.until_collecting)
        # when others become ready in the meantime
        for ticket, source in enumerate(SOURCES):
            put(parts, source, 10 + ticket, rows=40, which=1)

    monkeypatch.setattr(lane._pacing, "gather", gather)
    lane.turn(0)
    # then one transaction has them all
    assert paused[0] == pytest.approx(0.02)
    assert [len(shares) for shares, _, _ in parts.kafka.transactions] == [3, 3]


def test_a_lane_makes_its_producer_again_between_two_transactions(parts):
    """K1: certificates and passwords are read when a client is made."""
    lane, former = parts.lanes[0], parts.kafka.opened.count("b.0")
    parts.kafka.is_stale = True
    put(parts, ONE, 1)
    lane.turn(0)
    assert (parts.deliverer.outcomes, parts.kafka.opened.count("b.0")) == ({1: Accept()}, former + 1)
    assert parts.recovering == {}
