"""`headrace lake serve`: published versions by Spark Connect and JDBC, one publication for each query, nothing but queries."""

import json
import threading
from dataclasses import replace
from datetime import UTC

import psutil
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.connect.functions import col, from_json, lit, product
from pyspark.sql.types import LongType, StructField, StructType

from headrace import warm_loads
from headrace.process import jar_folder
from headrace.warm_loads import Request
from spark_jobs import storage
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, publication, published
from tests.hostile.old_tls import assert_old_versions_are_refused
from tests.hostile.statements import AS_SPARK, CALLS, LARGE, TYPES, requests, statements
from tests.lake.logged import LoggedLake
from tests.lake.served import LATE, TOKEN, Server
from tests.rules.waiting import eventually

COLUMNS = {"id": ("int8", None, None), "balance": ("numeric", 10, 2)}
TABLES = ("public.accounts", "public.tellers")
#: What loads do; `{}` is a table's path.
WRITES = [
    "DELETE FROM delta.`{}`",
    "INSERT INTO delta.`{}` VALUES (1, 1)",
    "DELETE FROM silver.accounts",
    "CREATE TABLE delta.`{}x` (a int) USING delta",
]
#: TPC-B's invariant, by two tables that are looked up one after the other.
SUM = "SELECT (SELECT sum(balance) FROM silver.accounts) - (SELECT sum(balance) FROM silver.tellers) AS difference"


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Return a lake of two tables with equal sums."""
    settings = '[streams.bank.tables."public.tellers"]\nexpect = { first = "id < 2" }\nvalid_view = true\n'
    lake = LoggedLake(spark, tmp_path_factory.mktemp("served") / "lake", settings)
    feed = lake.feeds[0]
    changes = []
    for table in TABLES:
        changes.append(feed.schema(COLUMNS, table=table))
        changes += [feed.insert(table, id=number, balance="10.00") for number in range(3)]
    feed.commit(*changes)
    lake.load()
    return lake


@pytest.fixture(scope="module")
def server(spark, lake):
    """Yield a server of the lake that has loaded too: what clients may do and are shown does not depend on that."""
    server = Server(lake._path, 'loads = "run/loads"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(server.authority))
        try:
            server.start()
            feed = lake.feeds[0]
            feed.commit(*(feed.update(table, id=1, balance="10.00") for table in TABLES))
            lake.to_bronze()
            before = published.latest(spark, lake.file, "bank").load
            assert load(server).report["silver"]["load"] == before + 1
            yield server
        finally:
            server.stop()


def load(server, stream="bank"):
    """Let the server load; return its answer. Bronze would need Kafka."""
    with warm_loads.connect(server.folder / "run" / "loads") as connection:
        request = Request(config=str(server.file), stream=stream, only="silver")
        return warm_loads.load(connection, request, lambda *_: None)


def path(lake, table):
    return table_task.path(lake.file, "bank", table)


def refused(ask, text):
    """Return why a statement is refused; fail when it is not."""
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        ask(text)
    return str(caught.value)


def test_published_versions_are_shown_by_both_protocols(spark, lake, server):
    # what no load has published is not shown
    spark.sql(f"DELETE FROM {storage.table(path(lake, 'public.accounts'))} WHERE id = 0")
    try:
        with server.connect() as session, server.jdbc(spark) as jdbc:
            assert session.sql("SELECT count(*) AS n FROM silver.accounts").collect()[0]["n"] == 3
            assert jdbc.ask("SELECT count(*) FROM accounts") == [("3",)]
            assert jdbc.ask("SELECT count(*) FROM bronze.bank WHERE op = 'c'") == [("6",)]
            assert jdbc.ask("SELECT `table`, state FROM lake.tables ORDER BY 1") == [(t, "current") for t in TABLES]
            state = published.latest(spark, lake.file, "bank").tables["public.tellers"]
            rows = spark.read.format("delta").option("versionAsOf", state.version).load(path(lake, "public.tellers"))
            assert jdbc.ask("SELECT count(*) FROM valid.tellers") == [("2",)]
            counted = session.sql("SELECT expectation, total, total_failing FROM lake.quality").collect()
            assert {tuple(row) for row in counted} == {("first", 3, 1)}
            by_frames = session.table("silver.tellers").filter("id = 1").select("balance").collect()
            assert by_frames == rows.filter("id = 1").select("balance").collect()
            assert [row["tableName"] for row in session.sql("SHOW TABLES IN silver").collect()] == [
                "accounts",
                "tellers",
            ]
    finally:
        state = published.latest(spark, lake.file, "bank")
        spark.sql(
            f"RESTORE {storage.table(path(lake, 'public.accounts'))} TO VERSION AS OF {state.tables[TABLES[0]].version}"
        )


def test_what_loads_have_is_out_of_reach_of_clients(spark, lake, server):
    with server.connect() as session, server.jdbc(spark) as jdbc:
        # the catalog of each session is the served one, and cannot be another
        name = "spark.sql.catalog.spark_catalog"
        assert session.conf.get(name) == "headrace.serve.PublishedCatalog"
        for ask in (jdbc.ask, lambda text: session.sql(text).collect()):
            assert "refused" in refused(ask, f"SET {name} = org.apache.spark.sql.delta.catalog.DeltaCatalog")
            assert "refused" in refused(ask, "SET spark.job.tags = headrace-load")
            assert "refused" in refused(ask, "SET spark.scheduler.pool = loads")
            assert [text for text in WRITES if "refused" not in refused(ask, text.format(path(lake, TABLES[0])))] == []
        with pytest.raises(Exception, match="refused"):
            session.conf.set(name, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # what a load fails with does not end the server, nor the next load
        failed = load(server, stream="nothing")
        assert (failed.failure.exit_code, failed.report) == (2, None)
        assert load(server).failure is None
        assert jdbc.ask(SUM) == [("0.00",)]
    mode = (server.folder / "run" / "loads").stat().st_mode
    assert mode & 0o77 == 0


class Publishing:
    """Publishes versions that belong together, one after the other as fast as it can, while clients ask."""

    def __init__(self, spark, lake, pairs):
        self._session, self._lake, self._pairs = spark.newSession(), lake, pairs
        self.state, self.count, self.stop = published.latest(spark, lake.file, "bank"), 0, threading.Event()

    def publish(self):
        while not self.stop.is_set():
            versions = self._pairs[self.count % len(self._pairs)]
            tables = {
                name: replace(self.state.tables[name], version=version, changes=1)
                for name, version in zip(TABLES, versions, strict=True)
            }
            done = replace(self.state, tables=tables, changes=2)
            self.state = publication.append(self._session, self._lake.file, done, before=self.state)
            self.count += 1

    def ask(self, answers, question):
        while not self.stop.is_set():
            answers.append(question())


@pytest.mark.long
def test_a_query_sees_one_publication_while_loads_publish_as_fast_as_they_can(spark, lake, server):
    # versions that belong together, none of which is published yet
    pairs = []
    for step in range(3):
        for table in TABLES:
            spark.sql(f"UPDATE {storage.table(path(lake, table))} SET balance = balance + {step + 1} WHERE id = 1")
        pairs.append([delta_log.version(spark, path(lake, table)) for table in TABLES])
    publishing = Publishing(spark, lake, pairs)
    with server.connect() as session, server.connect() as frames, server.jdbc(spark) as jdbc:

        def by_frames():
            # each part of the plan is analysed at a time of its own
            first, two = (frames.table(name).withColumn("x", lit(1)) for name in ("silver.accounts", "silver.tellers"))
            joined = first.join(two.withColumnRenamed("balance", "other"), "id")
            return joined.selectExpr("sum(balance - other)", "sum(balance)").collect()[0]

        text = f"SELECT ({SUM}), (SELECT sum(balance) FROM silver.accounts)"
        questions = [lambda: jdbc.ask(text)[0], lambda: session.sql(text).collect()[0], by_frames]
        seen: list[list] = [[], [], []]
        threads = [threading.Thread(target=publishing.publish)]
        threads += [threading.Thread(target=publishing.ask, args=pair) for pair in zip(seen, questions, strict=True)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: min([publishing.count, *map(len, seen)]) >= 6, 300, saying="enough was asked")
        finally:
            publishing.stop.set()
            for thread in threads:
                thread.join(60)
    for answers in seen:
        assert {float(difference) for difference, _ in answers} == {0.0}
        # new publications were seen meanwhile
        assert len({total for _, total in answers}) > 1


def test_a_session_asks_the_past(spark, lake, server):
    first = spark.read.format("delta").load(published.path(lake.file)).filter("load = 1").first()
    with server.connect() as session, server.jdbc(spark) as jdbc:
        now = jdbc.ask("SELECT sum(balance) FROM accounts")
        for ask in (jdbc.ask, lambda text: [tuple(map(str, row)) for row in session.sql(text).collect()]):
            ask(f"SET headrace.as_of = {first['finished_at'].astimezone(UTC).isoformat()}")
            assert ask("SELECT sum(balance) FROM silver.accounts") == [("30.00",)]
            assert ask(SUM) == [("0.00",)]
            ask("RESET headrace.as_of")
            assert ask("SELECT sum(balance) FROM silver.accounts") == now
        jdbc.ask(f"SET headrace.as_of = jakarta/bank={first['positions']['jakarta/bank']}")
        assert jdbc.ask(SUM) == [("0.00",)]
        for text, reason in (
            ("yesterday", "is a time"),
            ("2001-01-01", "nothing is kept"),
            ("a/b=0", "nothing is kept"),
        ):
            jdbc.ask(f"SET headrace.as_of = {text}")
            with pytest.raises(Py4JJavaError) as caught:
                jdbc.ask("SELECT 1 FROM accounts")
            # the reason alone, without the server's classes
            message = caught.value.java_exception.getMessage()
            assert reason in message
            assert "\tat " not in message


def test_only_queries_of_published_tables_are_taken(spark, lake, server):
    versions = [delta_log.version(spark, path(lake, table)) for table in TABLES]
    with server.connect() as session, server.jdbc(spark) as jdbc:

        def collect(text):
            return session.sql(text).collect()

        taken = []
        for ask in (jdbc.ask, collect):
            for text in [*statements(path(lake, "public.accounts")), *TYPES]:
                try:
                    ask(text)
                    taken.append(text)
                except (PySparkException, Py4JJavaError):
                    pass
            assert [text for text in CALLS if "refused" not in refused(ask, text)] == []
        assert taken == []
        # the error is in place of the plan
        for ask in (jdbc.ask, collect):
            assert "FileScan" not in str(ask("EXPLAIN EXTENDED SELECT * FROM text.`/etc/passwd`"))
        # the server's environment and properties are not spelled into a statement
        assert jdbc.ask("SELECT '${env:PATH}', '${system:user.home}'") == [("${env:PATH}", "${system:user.home}")]
        # what a connection brings is no setting of the server, nor a text in which its environment is named
        for given, shown in (("2999-01-31", True), ("%24%7Benv:PATH%7D", False)):
            with server.jdbc(spark, more=f"?headrace.as_of={given}") as other:
                answer = str(other.ask("SET headrace.as_of"))
                assert ("2999-01-31" in answer, "/bin" in answer) == (shown, False)
        with server.jdbc(spark, more="?spark.sql.runSQLOnFiles=true;system:headrace.x=1#y=2") as other:
            assert "refused" in refused(other.ask, "SET spark.sql.runSQLOnFiles")
            refused(other.ask, "SELECT * FROM text.`/etc/passwd`")
        # and what is allowed still is
        for ask in (jdbc.ask, collect):
            ask("CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT * FROM silver.accounts WHERE id < 2")
            assert len(ask("SELECT * FROM mine JOIN silver.tellers USING (id)")) == 2
            assert "FileScan" in str(ask("EXPLAIN SELECT * FROM silver.accounts"))
            ask("DESCRIBE silver.accounts")
            ask("SET spark.sql.session.timeZone = UTC")
            ask("USE silver")
    assert [delta_log.version(spark, path(lake, table)) for table in TABLES] == versions


@pytest.fixture(scope="module")
def java(spark):
    """Return a function that calls a static method of ours, or a constructor, in the tests' own JVM."""
    url = spark._jvm.java.io.File(str(jar_folder() / "serve" / "headrace-serve.jar")).toURI().toURL()
    urls = spark._sc._gateway.new_array(spark._jvm.java.net.URL, 1)
    urls[0] = url
    loader = spark._jvm.java.net.URLClassLoader(
        urls, spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )

    def call(name, method, *values):
        kind = loader.loadClass(f"headrace.serve.{name}")
        arguments = spark._sc._gateway.new_array(spark._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            arguments[place] = value
        if method == "new":
            return kind.getConstructors()[0].newInstance(arguments)
        (found,) = [each for each in kind.getDeclaredMethods() if each.getName() == method]
        return found.invoke(None, arguments)

    call.field = lambda name, field: loader.loadClass(f"headrace.serve.{name}").getDeclaredField(field)
    return call


def test_every_function_of_spark_is_allowed_or_refused(spark, java):
    def decide(name):
        return java("Functions", "decision", name)

    decisions = {row[0]: decide(row[0]) for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    # somebody has to read these, and put each on one of the lists
    assert [name for name, decision in decisions.items() if decision is None] == []
    assert (decisions["sum"], decisions["reflect"], decide("a_function_of_a_later_spark")) == (True, False, None)


def test_what_a_query_is_shown_is_kept_until_it_ends_and_no_longer(spark, java):
    field = java.field("Publications", "OF_OPERATIONS")
    field.setAccessible(True)
    held, session, context = field.get(None), spark._jsparkSession, spark.sparkContext

    def publish(number):
        tables = [("silver", "Moves", number), ("silver", "stays", 1), ("lake", "view", -1)]
        relations = [{"database": d, "name": n, "path": f"file:/{n}", "version": v} for d, n, v in tables]
        java("Publications", "publish", json.dumps({"number": str(number), "relations": relations}))

    def shown():
        return java("Publications", "shown", session)

    publish(1)
    # a look at a plan, of which there is one for each word that is typed into a notebook
    for number in range(3):
        java("Publications", "beginAnalysis", f"analysis {number}")
        assert shown().relation("silver", "moves").version() == 1
        assert held.size() == 1
        java("Publications", "endAnalysis")
        assert held.size() == 0
    # a query, however it ends, is shown what was published when it began
    queries = java("Queries", "new", 5, 1000, 60, "")
    context.setLocalProperty("spark.jobGroup.id", "of the query")
    try:
        query = queries.begin("alice", "thrift", "session", "SELECT 1")
        queries.named(query, "thrift 1", "of the query", None)
        before = shown()
        publish(2)
        assert shown().relation("silver", "Moves").version() == 1
        queries.end("thrift 1", "done")
        assert held.size() == 0
        after = shown()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        held.clear()
    # what is in both publications is there once
    assert after.relation("silver", "moves").version() == 2
    for name, shared in (("stays", 1), ("moves", 2)):
        relations = [each.relation("silver", name) for each in (before, after)]
        assert len({spark._jvm.java.lang.System.identityHashCode(relation) for relation in relations}) == shared


def test_functions_that_compute_are_called(spark, lake, server):
    shape = StructType([StructField("a", LongType())])
    with server.connect() as session, server.jdbc(spark) as jdbc:
        frame = session.table("silver.accounts").filter((col("id") == 2) & ~col("balance").isNull())
        rows = frame.select(from_json(lit('{"a": 3}'), shape)["a"], product(-col("id"))).collect()
        assert tuple(rows[0]) == (3, -2.0)
        days = "timestampdiff(DAY, DATE'2026-01-01', DATE'2026-01-03')"
        texts = {
            f"SELECT from_csv('1;2', 'a int, b int', map('sep', ';')).b, {days}": ("2", "2"),
            "SELECT 'a' || 'b', coalesce(try_divide(1, 0), x) FROM explode(array(5)) AS t(x)": ("ab", "5.0"),
            "SELECT rpad('a', cast(id AS int) + 1, 'b'), size(sequence(DATE'2026-01-01', DATE'2026-12-31')) FROM range(1)": (
                "a",
                "365",
            ),
            "SELECT repeat('ab', 2), format_string('%05d', stack) FROM (SELECT stack(2, 7, 8) AS stack) WHERE stack < 8": (
                "abab",
                "00007",
            ),
            "SELECT sum(x) FROM accounts LATERAL VIEW posexplode(array(1)) AS n, x WHERE id BETWEEN 1 AND 2": ("2",),
        }
        session.sql("USE silver")
        for text, row in texts.items():
            assert jdbc.ask(text) == [row]
            assert [tuple(map(str, each)) for each in session.sql(text).collect()] == [row]


def test_calls_of_functions_with_a_limit_are_as_spark_has_them(spark, lake, server):
    def answer(session, text):
        try:
            frame = session.sql(text)
            return frame.columns, frame.collect()
        except PySparkException as error:
            return error.getCondition()

    with server.connect() as session:
        for text in AS_SPARK:
            assert (text, answer(session, text)) == (text, answer(spark, text))


@pytest.mark.long
def test_a_query_that_needs_more_memory_than_there_is_fails_alone(spark, lake, server):
    with server.connect() as session, server.jdbc(spark) as jdbc:
        for ask in (jdbc.ask, lambda text: session.sql(text).collect()):
            for text in LARGE:
                refused(ask, text)
            assert len(ask("SELECT * FROM silver.accounts")) == 3


def test_jdbc_lists_what_is_published(spark, lake, server):
    lists = {}
    # the first list of a connection is where Hive looks for a metastore
    for name in ("getSchemas", "getTables", "getColumns", "getTypeInfo", "getPrimaryKeys", "getImportedKeys"):
        with server.jdbc(spark) as jdbc:
            data = jdbc.connection.getMetaData()
            arguments = {
                "getTables": (None, "silver", "%", None),
                "getColumns": (None, "silver", "accounts", "%"),
                "getPrimaryKeys": (None, "silver", "accounts"),
                "getImportedKeys": (None, "silver", "accounts"),
            }.get(name, ())
            lists[name] = jdbc.rows(getattr(data, name)(*arguments))
    assert {"silver", "history", "bronze", "lake"} <= {row[0] for row in lists["getSchemas"]}
    assert [row[1:4] for row in lists["getTables"]] == [("silver", name, "VIEW") for name in ("accounts", "tellers")]
    assert [row[3:6:2] for row in lists["getColumns"]][:2] == [("id", "BIGINT"), ("balance", "DECIMAL(10,2)")]
    assert {"BIGINT", "DECIMAL", "TIMESTAMP"} <= {row[0] for row in lists["getTypeInfo"]}
    assert lists["getPrimaryKeys"] == lists["getImportedKeys"] == []
    assert not (server.folder / "metastore_db").exists()


def test_connect_takes_no_code_files_or_writes(spark, lake, server):
    place = path(lake, "public.accounts")
    with server.connect() as session:
        tries = requests(session, place)
        taken = []
        for name, attempt in tries.items():
            try:
                attempt()
                taken.append(name)
            except Exception:  # noqa: BLE001 - whatever the client makes of a refusal.
                pass
        assert taken == []
        # a frame kept as a view is of the publication at which it was made
        frame = session.table("silver.accounts")
        frame.createOrReplaceTempView("kept")
        assert session.sql("SELECT count(*) AS n FROM kept").collect()[0]["n"] == 3


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.:DeprecationWarning")
def test_users_are_known_by_token_and_what_they_ask_is_recorded(spark, lake, server):
    for token in (LATE, "", "guess"):
        with pytest.raises(Exception, match="UNAUTHENTICATED"), server.connect(token) as session:
            session.sql("SELECT 1").collect()
    for user, token in (("bob", LATE), ("alice", "guess"), ("carol", TOKEN), ("alice", "")):
        with pytest.raises(Py4JJavaError), server.jdbc(spark, user, token):
            pass
    # nobody is reached by TLS before 1.2, or without it
    for port in (server.connect_port, server.thrift_port):
        assert_old_versions_are_refused(port)
    with pytest.raises(Py4JJavaError):
        spark._jvm.java.sql.DriverManager.getConnection(
            f"jdbc:hive2://localhost:{server.thrift_port}/silver;socketTimeout=5", "alice", TOKEN
        )
    with server.connect() as session, server.jdbc(spark) as jdbc:
        session.sql("SELECT 41 + 1 AS connected").collect()
        jdbc.ask("SELECT 41 + 1 AS by_jdbc")
        # a user that is taken out of the file asks no more
        text = server.users.read_text()
        server.users.write_text("# nobody\n")
        try:
            refused(jdbc.ask, "SELECT 1")
            refused(lambda it: session.sql(it).collect(), "SELECT 1")
        finally:
            server.users.write_text(text)
    lines = [json.loads(line) for line in server.audit.read_text().splitlines()]
    began = {line["number"]: line for line in lines if line["state"] == "begins"}
    for text, protocol in (("connected", "connect"), ("by_jdbc", "thrift")):
        (number, *_) = [n for n, line in began.items() if text in line["query"]]
        assert (began[number]["user"], began[number]["protocol"]) == ("alice", protocol)
        ends = [line["seconds"] for line in lines if line["number"] == number and line["state"] == "done"]
        assert ends
        assert min(ends) >= 0
    assert TOKEN not in server.audit.read_text() + server.log
    assert server.audit.stat().st_mode & 0o77 == 0


def test_an_answer_has_an_end(spark, lake, server):
    with server.connect() as session, server.jdbc(spark) as jdbc:
        assert "more than 1000 rows" in refused(jdbc.ask, "SELECT id FROM range(5000)")
        assert "more than 1000 rows" in refused(lambda it: session.sql(it).collect(), "SELECT id FROM range(5000)")
        assert len(jdbc.ask("SELECT id FROM range(1000)")) == 1000
        assert len(session.sql("SELECT id FROM range(1000)").collect()) == 1000


def test_settings_of_the_lakes_file_are_followed(spark, lake, server):
    text = server.file.read_text()
    with server.jdbc(spark) as jdbc:
        # As editors do: a file that is read is whole.
        changed = server.file.with_suffix(".new")
        changed.write_text(f'{text}[streams.bank.tables."public.accounts"]\nvalid_view = true\n')
        changed.replace(server.file)
        try:
            eventually(lambda: jdbc.ask("SELECT count(*) FROM valid.accounts") == [("3",)])
        finally:
            server.file.write_text(text)
        eventually(lambda: [row[1] for row in jdbc.ask("SHOW TABLES IN valid")] == ["tellers"])
        refused(jdbc.ask, "SELECT count(*) FROM valid.accounts")


@pytest.mark.long
def test_a_server_whose_jvm_is_killed_ends_and_starts_again(spark, lake, server):
    # when its JVM is killed, as for a lack of memory
    (jvm,) = psutil.Process(server.process.pid).children()
    with warm_loads.connect(server.folder / "run" / "loads") as connection:
        jvm.kill()
        jvm.wait(60)
        # then its loads are left to processes of their own, and it ends
        request = Request(config=str(server.file), stream="bank", only="silver")
        assert warm_loads.load(connection, request, lambda *_: None) is None
    assert server.process.wait(120) == 5
    assert "Spark has ended" in server.log
    server.start()
    with server.connect() as session, server.jdbc(spark) as jdbc:
        assert session.sql(SUM).collect()[0]["difference"] == 0
        assert jdbc.ask(SUM) == [("0.00",)]
