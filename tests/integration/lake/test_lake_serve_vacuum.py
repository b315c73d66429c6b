"""`headrace lake serve` while loads publish and maintenance removes files: what is published is always answered, and a version
whose files are gone is one that the client is told about.
"""

import re
import threading
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from py4j.protocol import Py4JJavaError

from headrace.configuration.lake import local_path
from headrace.errors import ConfigurationError
from spark_jobs import load as load_job
from spark_jobs.maintenance import erase, maintain
from spark_jobs.query.engine import refusals
from spark_jobs.state import published
from tests.integration.lake.test_lake_serve import COLUMNS, SUM, TABLES, path, refused
from tests.lake.age import age
from tests.lake.logged import LoggedLake
from tests.lake.served import Server
from tests.rules.waiting import eventually

#: Several loads and maintenance, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J = "jakarta/bank"
BOTH = f"SELECT ({SUM}), (SELECT sum(balance) FROM silver.accounts)"
PAGES = "SELECT 'a' AS t, balance FROM silver.accounts UNION ALL SELECT 't', balance FROM silver.tellers"


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Return a lake of two tables with equal sums, each of several files."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("served") / "lake")
    lake.feeds[0].commit(*(lake.feeds[0].schema(COLUMNS, table=table) for table in TABLES))
    for number in range(3):
        add_rows(lake, number)
    return lake


@pytest.fixture(scope="module")
def server(lake):
    """Yield a server of the lake."""
    server = Server(lake._path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(server.authority))
        try:
            server.start()
            yield server
        finally:
            server.stop()


def add_rows(lake, number):
    """Load a row into each table, of the same value."""
    lake.feeds[0].commit(*(lake.feeds[0].insert(table, id=number, balance="10.00") for table in TABLES))
    lake.load()


def maintained(spark, lake, days=0.0):
    """Let maintenance run that keeps files for a day, after so many days."""
    if days:
        age(spark, lake.file, days)
    file = msgspec.structs.replace(lake.file, lake=msgspec.structs.replace(lake.file.lake, keep_days=1))
    return maintain.maintain(spark, file, "bank")


def asking(session):
    """Return what asks a session of Spark Connect as one of JDBC is asked."""
    return lambda text: [tuple(map(str, row)) for row in session.sql(text).collect()]


def pages(jdbc, text):
    """Return the rows of an answer that is taken a row at a time, one after the other."""
    statement = jdbc.connection.createStatement()
    try:
        statement.setFetchSize(1)
        answer = statement.executeQuery(text)
        while answer.next():
            yield tuple(answer.getString(column) for column in (1, 2))
    finally:
        statement.close()


class Readers:
    """Clients that ask without a pause, but while the lake is made older, which writes the files of its logs again.

    Each asks both tables at one publication: for the difference of their sums, and the sum.
    """

    def __init__(self, questions):
        self._questions, self.answers, self.errors = questions, [set() for _ in questions], []
        self._stop, self._go = threading.Event(), threading.Event()
        self._busy = [threading.Lock() for _ in questions]
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(len(questions))]

    def __enter__(self):
        self._go.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._go.set()
        for thread in self._threads:
            thread.join(120)

    def _ask(self, number):
        while not self._stop.is_set():
            self._go.wait()
            with self._busy[number]:
                try:
                    self.answers[number].add(tuple(map(Decimal, self._questions[number]())))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is one too many.
                    self.errors.append(error)
                    return

    @contextmanager
    def resting(self):
        """Have no query run meanwhile."""
        self._go.clear()
        with ExitStack() as stack:
            for lock in self._busy:
                stack.enter_context(lock)
            yield
        self._go.set()


def summed(rows):
    """Return the difference of the two tables' sums, and the sum of the first, of rows of both."""
    sums = {table: sum(Decimal(value) for name, value in rows if name == table) for table in "at"}
    return sums["a"] - sums["t"], sums["a"]


@pytest.mark.long
def test_what_is_published_is_always_answered_while_loads_publish_and_files_are_removed(spark, lake, server):
    first, feed = published.latest(spark, lake.file, "bank").positions[J], lake.feeds[0]
    with ExitStack() as stack:
        sessions = [stack.enter_context(server.connect()) for _ in range(3)]
        connections = [stack.enter_context(server.jdbc(spark)) for _ in range(3)]
        # given sessions of the past by both protocols
        held = (connections[0].ask, asking(sessions[0]))
        for ask in held:
            ask(f"SET headrace.as_of = {J}={first}")
        before = [ask(BOTH) for ask in held]
        assert before[0] == before[1]
        # and clients that ask, and page through answers
        questions = [
            lambda: connections[1].ask(BOTH)[0],
            lambda: sessions[1].sql(BOTH).collect()[0],
            lambda: summed(list(pages(connections[2], PAGES))),
            lambda: summed([tuple(row) for row in sessions[2].sql(PAGES).toLocalIterator()]),
        ]
        with Readers(questions) as readers:
            for step in range(2):
                # when
                with readers.resting():
                    age(spark, lake.file, 2)
                # All rows, so that whole files are replaced, whatever of them maintenance has put together.
                ids = [number for _, number in lake.rows("id")]
                feed.commit(
                    *(feed.update(table, id=number, balance=f"{100 + step}.00") for table in TABLES for number in ids)
                )
                lake.load()
                now = sum(Decimal(balance) for _, balance in lake.rows("balance"))
                eventually(
                    lambda now=now: readers.errors or all((0, now) in answers for answers in readers.answers), 240
                )
                assert maintained(spark, lake).skipped == []
                if not step:
                    # what was replaced within a day is kept
                    assert [ask(BOTH) for ask in held] == before
        # then none of them failed, and none saw half a load
        assert readers.errors == []
        assert {difference for answers in readers.answers for difference, _ in answers} == {0}
        # and who holds to what is gone hears of it, and goes on with what is there
        with pytest.raises(ConfigurationError, match=r"^silver\.accounts is not there"), refusals():
            sessions[0].sql("SELECT sum(balance) FROM silver.accounts").collect()
        for ask in held:
            for text in ("SELECT sum(balance) FROM silver.accounts", PAGES, BOTH):
                assert_is_gone(ask, text)
            ask("RESET headrace.as_of")
            assert ask(SUM) == [("0.00",)]


def assert_is_gone(ask, text):
    """Assert that a query fails with a reason that names a table and what to do, and no file."""
    reason = refused(ask, text)
    assert re.search(
        r"\bsilver\.(accounts|tellers) is not there .* maintenance removes files .* headrace\.as_of", reason
    ), reason
    assert not re.search(r"\.parquet|FAILED_READ_FILE", reason), reason


@pytest.mark.long
def test_an_answer_whose_files_are_removed_while_it_is_read_ends_with_the_reason_or_is_whole(spark, lake, server):
    with server.connect() as session, server.jdbc(spark) as jdbc:
        whole, before = sorted(jdbc.ask(PAGES)), published.latest(spark, lake.file, "bank")
        # given answers of which a row was taken
        by_jdbc, by_connect = pages(jdbc, PAGES), session.sql(PAGES).toLocalIterator()
        row, begun = next(by_jdbc), [next(by_connect)]
        assert row in whole
        # when the files are replaced, and removed days later
        add_rows(lake, 100 + len(whole))
        maintained(spark, lake)
        maintained(spark, lake, days=2)
        # then JDBC, which reads files as rows are taken, has the rest of its file at most
        with pytest.raises(Py4JJavaError, match=r"silver\.(accounts|tellers) .*maintenance removes files"):
            list(by_jdbc)
        # and Spark Connect, which read them when the query began, has all
        assert sorted(tuple(map(str, row)) for row in [*begun, *by_connect]) == whole
        for ask in (jdbc.ask, asking(session)):
            assert len(ask(PAGES)) == len(whole) + 2
        # when the log has no commit of that version any more either
        age(spark, lake.file, 30)
        for table in TABLES:
            log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path(lake, table))
            none = spark._jvm.scala.Option.empty()
            log.checkpointAndCleanUpDeltaLog(log.update(False, none, none), none)
            commit = f"{path(lake, table)}/_delta_log/{before.tables[table].version:020}.json"
            assert not Path(local_path(commit)).exists()
        # then those who ask for it hear the same
        for ask in (jdbc.ask, asking(session)):
            ask(f"SET headrace.as_of = {J}={before.positions[J]}")
            assert_is_gone(ask, PAGES)
            ask("RESET headrace.as_of")
            assert len(ask(PAGES)) == len(whole) + 2


@pytest.mark.long
def test_what_is_no_table_of_silver_is_answered_while_nothing_is_published(spark, lake, server):
    texts = [
        "SELECT count(*) FROM bronze.bank",
        "SELECT count(*) FROM headrace.loads",
        "SELECT count(*) FROM lake.tables",
    ]
    # given the last load for a while, which is recorded once it has published
    lake.feeds[0].commit(*(lake.feeds[0].update(table, id=1, balance="7.00") for table in TABLES))
    lake.to_bronze()
    load_job.run(spark, lake.file, "bank", only="silver")
    counts = {text: ask_spark(spark, lake, text) for text in texts[:2]}
    with server.connect() as session, server.jdbc(spark) as jdbc:
        for text, count in counts.items():
            eventually(lambda text=text, count=count: jdbc.ask(text) == [(str(count),)], 120, saying=text)
        # when its records are put together, and those that were, are removed later
        maintained(spark, lake)
        eventually(lambda: all(jdbc.ask(text) for text in texts), 120)
        maintained(spark, lake, days=2)
        # then
        for ask in (jdbc.ask, asking(session)):
            assert [ask(text) for text in texts[:2]] == [[(str(count),)] for count in counts.values()]
            assert ask(texts[2]) == [("2",)]
        # and what is erased from bronze is not shown any more, though no load came since
        text = "SELECT count(*) FROM bronze.bank WHERE `table` IN ('public.accounts', 'public.tellers')"
        before = int(jdbc.ask(text)[0][0])
        for table in TABLES:
            erase.erase(spark, lake.file, "bank", table, ["2"], reason="test")
        eventually(lambda: int(jdbc.ask(text)[0][0]) == before - 2, 120)


def ask_spark(spark, lake, text):
    """Return the count that a table of the lake has now, by its text for the server."""
    place = text.rpartition(" ")[2].replace("headrace.", "").replace(".", "/")
    return spark.read.format("delta").load(f"{lake.file.root}/{place}").count()
