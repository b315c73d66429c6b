"""Changed settings of records: their schema record reaches the far side ahead of the first change that it takes (E5). And passed
transactions: of the present epoch alone.
"""

import msgspec
import pytest

from bridge.model.chain import Next, judge
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.notes import Passed, PassedTransactions, RecordSettings, fingerprint
from headrace.configuration.databases import Debezium
from headrace.configuration.edge import ColumnRule, EdgeFile, Policy
from headrace.configuration.load import load
from headrace.position import Position
from tests.unit.edge.mysql.events import feed, make_decoder, query, rotate, rows, xid
from tests.unit.edge.mysql.test_decoder import ACCOUNTS, ANA, BUDI, mysql_gtid
from tests.unit.edge.postgres.messages import INT4, NUMERIC, Column, Log, insert, opened, relation
from tests.unit.edge.progress.test_checkpoint import checkpoint

_FILE = """
[source]
name = "jakarta/bank"
[source.postgresql]
host = "h"
database = "bank"
user = "u"
slot = "s"
publication = "p"
[interconnect]
url = "amqp://127.0.0.1:5672"
[state]
folder = "state"
"""
NUMBERS = relation(Column("id", INT4, True), Column("amount", NUMERIC, False, (10 << 16 | 2) + 4))


def postgres(until, **records):
    """Return the batches of a session that reads three transactions."""
    log = Log(repeat_schema_until=until, **records)
    log.transaction(NUMBERS, insert(1, "1.50"), insert(2, "2.50"), insert(3, "3.50"), commit_lsn=1000, end=1100)
    log.transaction(insert(4, "4.50"), insert(5, "5.50"), commit_lsn=2000, end=2100)
    log.transaction(insert(6, "6.50"), insert(7, "7.50"), commit_lsn=3000, end=3100)
    return log.batches()


def mysql(until, **options):
    decoder, batcher = make_decoder(repeat_schema_until=until and 7 << 32 | 1000, **options)
    feed(decoder, rotate())
    for number in range(3):
        start = 200 + 500 * number
        inner = [ACCOUNTS, rows(30, 2, ANA + BUDI), rows(30, 2, ANA)]
        feed(decoder, mysql_gtid(number + 1, start), query("BEGIN", start + 50), *inner, xid(start + 300))
    return [opened(each) for each in [*batcher.take(), batcher.seal()]]


MASK = Policy(columns=[ColumnRule(columns=["bank.accounts.name"], action="mask")])
ENGINES = [(postgres, {}, {"decimal": "precise"}), (mysql, {}, {"policy": MASK})]


def is_schema(value):
    return b'"tableChanges"' in value


@pytest.mark.parametrize(("session", "former", "changed"), ENGINES, ids=["postgresql", "mysql"])
def test_whatever_the_far_side_has_already_the_changed_schema_goes_ahead_of_what_it_takes(session, former, changed):
    sent = session(0, **former)
    positions = [position for batch in sent for position in batch.positions()]
    for tail in {position for position in positions if position.commit < positions[-1].commit}:
        kafka, at = [], tail
        for batch in session(2000, **changed):
            verdict = judge(at, batch)
            if isinstance(verdict, Next):
                kafka += batch.values[verdict.begin :]
                at = batch.last
        assert at == positions[-1]
        assert is_schema(kafka[0]), tail


@pytest.mark.parametrize(("session", "former", "changed"), ENGINES, ids=["postgresql", "mysql"])
def test_behind_what_may_have_been_sent_a_schema_record_comes_once(session, former, changed):
    values = [value for batch in session(2000, **changed) for value in batch.values]
    first = next(
        number for number in range(len(values)) if not is_schema(values[number]) and not is_schema(values[number - 1])
    )
    assert sum(map(is_schema, values[first:])) == 0
    assert sum(map(is_schema, values)) == first // 2


@pytest.fixture
def config(tmp_path):
    (tmp_path / "edge.toml").write_text(_FILE)
    return load(tmp_path / "edge.toml", EdgeFile)


class Process:
    """The part of an edge's process that is about the note."""

    def __init__(self, folder, config, *, decimal="string"):
        records = msgspec.structs.replace(config.records, decimal=decimal)
        self.settings = RecordSettings(folder, msgspec.structs.replace(config, records=records))

    def begin(self, commit, log_end):
        return self.settings.begin(Position(7, commit, 0), lambda: log_end)

    def stop(self, commit, *, confirmed, sent=None):
        known: PostgresCheckpoint = checkpoint(Position(7, commit, 0), confirmed)
        self.settings.stopped(known, Position(7, sent or commit, 0))


@pytest.fixture
def process(tmp_path, config):
    def make(**settings):
        return Process(tmp_path, config, **settings)

    return make


def test_after_an_unclean_stop_changed_settings_repeat_schemas_to_the_end_of_the_log(process):
    process().begin(0, 500)

    assert process(decimal="precise").begin(100, 900) == 900
    assert process(decimal="precise").begin(200, 1500) == 900
    assert process(decimal="precise").begin(901, 2000) == 0


def test_after_a_stop_with_everything_acknowledged_changed_settings_repeat_nothing_behind_it(process):
    first = process()
    first.begin(0, 500)
    first.stop(600, confirmed=650)

    # A transaction that was sent in part may go on.
    assert process(decimal="precise").begin(600, 900) == 600


@pytest.mark.parametrize("stop", [{"confirmed": 400}, {"confirmed": 900, "sent": 700}])
def test_a_stop_that_leaves_open_what_was_sent_is_no_clean_one(process, stop):
    process().begin(0, 100)
    second = process()
    second.begin(100, 500)
    second.stop(600, **stop)

    assert process(decimal="precise").begin(600, 900) == 900


def test_without_a_note_nothing_is_known_but_in_a_new_epoch_there_is_nothing_before(process, tmp_path):
    assert process().begin(0, 500) == 0
    (tmp_path / "records.json").unlink()
    assert process().begin(100, 500) == 500
    (tmp_path / "records.json").write_text("{")
    assert process().begin(100, 500) == 500


@pytest.fixture
def of_db2(tmp_path, config):
    """Return what makes the settings of a source whose log's end Debezium does not name."""
    names = Debezium(connector="db2", properties={"database.hostname": "h"})
    source = msgspec.structs.replace(config.source, postgresql=None, debezium=names)
    spool = msgspec.structs.replace(config.spool, megabytes=0)

    def make(policy=config.policy):
        made = msgspec.structs.replace(config, source=source, spool=spool, policy=policy)
        return Process(tmp_path, made)

    return make


def test_of_a_log_whose_end_nobody_names_the_note_has_what_may_be_sent_ahead_of_it(of_db2):
    """After a crash schema records went ahead of each change until a change was two hours younger, with Db2 for good."""
    end = (1 << 60) + 7
    first = of_db2()
    first.begin(0, None)
    for place in (1 << 60, 500, end):
        first.settings.note_sent(place)

    # It crashed, as does the next one ahead of all that.
    of_db2().begin(100, None)
    changed = of_db2(MASK)
    assert changed.begin(100, None) == changed.settings.sent_until == end

    changed.stop(200, confirmed=1 << 60)
    later = of_db2(MASK)
    assert later.begin(200, None) == later.settings.sent_until == end
    later.stop(end - 1, confirmed=end)
    clean = of_db2()
    assert (clean.begin(end - 1, None), clean.settings.sent_until) == (end - 1, 0)


def test_where_the_note_of_what_was_sent_is_lost_all_may_have_been(of_db2):
    for _ in range(2):
        process = of_db2()
        assert process.begin(100, None) == process.settings.sent_until > 1 << 127
        process.settings.note_sent(500)


def test_the_sum_over_settings_knows_each_of_them_and_no_secret(config, monkeypatch):
    monkeypatch.setenv("KEY", "k" * 32)
    others = [
        msgspec.structs.replace(config, records=msgspec.structs.replace(config.records, time="connect")),
        msgspec.structs.replace(config, policy=msgspec.structs.replace(config.policy, exclude_tables=["a.b"])),
    ]
    assert len({fingerprint(each) for each in [config, *others]}) == 3


def test_names_of_another_epoch_are_other_transactions(tmp_path):
    """A server that was reset gives the same GTIDs again: nobody consented to give those up."""
    first = PassedTransactions(tmp_path)
    first.begin(1)
    first.stop_at("0-1-7")
    first.add(Passed("0-1-7", "ani@edge", 17))
    again = PassedTransactions(tmp_path)
    again.begin(1)
    assert (list(again.by_name), again.stopped) == (["0-1-7"], "")
    other = PassedTransactions(tmp_path)
    other.begin(2)
    assert not other.by_name
    assert not PassedTransactions(tmp_path).by_name
