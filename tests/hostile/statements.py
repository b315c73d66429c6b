"""What the server of SQL has to refuse: statements that are no queries, and calls that reach files, classes, the environment."""

from typing import Any

from pyspark.sql.connect.column import Column
from pyspark.sql.connect.expressions import UnresolvedFunction
from pyspark.sql.connect.functions import call_function, col, lit, udf, udtf
from pyspark.sql.types import StringType, UserDefinedType

#: A class that a client has no business with.
_CLASS = "java.lang.Runtime"
_UDT = f'{{"type":"udt","class":"{_CLASS}","pyClass":null,"sqlType":"string"}}'
_REFLECT = "reflect('java.lang.System', 'getenv', 'PATH')"


def statements(place: str) -> list[str]:
    """Return statements that are no queries of published tables; `place` is a table's path."""
    return [
        "DELETE FROM silver.accounts",
        "UPDATE silver.accounts SET balance = 0",
        "INSERT INTO silver.accounts SELECT * FROM silver.accounts",
        "MERGE INTO silver.accounts t USING silver.tellers s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE silver.accounts",
        "DROP TABLE silver.accounts",
        "DROP VIEW silver.accounts",
        "DROP DATABASE silver CASCADE",
        "ALTER TABLE silver.accounts ADD COLUMNS (x int)",
        "ALTER VIEW silver.accounts AS SELECT 1",
        "CREATE TABLE silver.x (a int) USING delta",
        f"CREATE TABLE default.x USING delta LOCATION '{place}'",
        "CREATE TABLE default.y USING parquet AS SELECT 1 AS a",
        "CREATE VIEW silver.v AS SELECT 1",
        "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v AS SELECT 1",
        f"CREATE TEMPORARY VIEW v USING delta OPTIONS (path '{place}')",
        "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
        "CREATE DATABASE x",
        "CREATE FUNCTION f AS 'java.lang.Runtime'",
        "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime' USING JAR '/tmp/x.jar'",
        "CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 1",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1",
        "ADD JAR '/tmp/x.jar'",
        "ADD FILE '/etc/passwd'",
        "LIST JARS",
        "CACHE TABLE silver.accounts",
        "CACHE TABLE c AS SELECT * FROM silver.accounts",
        "REFRESH TABLE silver.accounts",
        "ANALYZE TABLE silver.accounts COMPUTE STATISTICS",
        "MSCK REPAIR TABLE silver.accounts",
        f"VACUUM delta.`{place}`",
        "OPTIMIZE silver.accounts",
        "RESTORE silver.accounts TO VERSION AS OF 0",
        f"DESCRIBE HISTORY delta.`{place}`",
        f"DESCRIBE DETAIL '{place}'",
        "SHOW CREATE TABLE silver.accounts",
        "DESCRIBE EXTENDED silver.accounts",
        "DESCRIBE FORMATTED silver.accounts",
        "DESCRIBE TABLE EXTENDED silver.accounts AS JSON",
        "SHOW TBLPROPERTIES silver.accounts",
        f"SELECT * FROM delta.`{place}`",
        f"SELECT * FROM (SELECT * FROM delta.`{place}`)",
        f"SELECT (SELECT max(id) FROM delta.`{place}`)",
        f"WITH w AS (SELECT * FROM delta.`{place}`) SELECT * FROM w",
        f"SELECT * FROM parquet.`{place}`",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM json.`s3a://bucket/key`",
        "SELECT * FROM silver.accounts VERSION AS OF 0",
        "SELECT * FROM silver.accounts TIMESTAMP AS OF '2026-01-01'",
        "SELECT * FROM silver.`accounts@v0`",
        "SELECT transform(id) USING 'cat' FROM silver.accounts",
        "SELECT TRANSFORM(id) USING 'touch /tmp/x' AS (a) FROM silver.accounts",
        "FROM silver.accounts INSERT INTO silver.tellers SELECT *",
        "EXPLAIN DELETE FROM silver.accounts",
        "EXECUTE IMMEDIATE 'DELETE FROM silver.accounts'",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "BEGIN DELETE FROM silver.accounts; END",
        "BEGIN SELECT 1; END",
        "DECLARE VARIABLE v = reflect('java.lang.System', 'getenv', 'PATH')",
        "SET VARIABLE v = 1",
        "CALL system.run('x')",
        "SET spark.sql.runSQLOnFiles = true",
        "SET spark.sql.variable.substitute = true",
        "SET spark.sql.catalog.x = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        "SET spark.sql.extensions",
        "SET spark.hadoop.fs.s3a.secret.key",
        "SET",
        "SET -v",
        "RESET",
        "RESET spark.sql.runSQLOnFiles",
        "USE CATALOG x",
    ]


#: Calls of functions that are refused, in every place of a query where one can be.
CALLS = [
    f"SELECT {_REFLECT}",
    f"SELECT {_REFLECT.upper()}",
    f"SELECT system.builtin.{_REFLECT}",
    f"SELECT builtin.{_REFLECT}",
    f"SELECT session.{_REFLECT}",
    "SELECT `reflect`('java.lang.System', 'getenv', 'PATH')",
    "SELECT java_method('java.lang.System', 'exit', 1)",
    "SELECT try_reflect('java.lang.System', 'exit', 1)",
    f"SELECT 1 ORDER BY {_REFLECT}",
    f"SELECT 1 GROUP BY {_REFLECT}",
    f"SELECT 1 HAVING {_REFLECT} = ''",
    f"SELECT id FROM silver.accounts WHERE EXISTS (SELECT {_REFLECT})",
    f"SELECT id FROM silver.accounts LIMIT length({_REFLECT})",
    f"SELECT count(*) FILTER (WHERE {_REFLECT} = '') FROM silver.accounts",
    f"SELECT sum(id) OVER (ORDER BY {_REFLECT}) FROM silver.accounts",
    f"SELECT sum(id) OVER w FROM silver.accounts WINDOW w AS (ORDER BY {_REFLECT})",
    f"SELECT a.id FROM silver.accounts a JOIN silver.tellers b ON {_REFLECT} = ''",
    f"SELECT transform(array(1), x -> {_REFLECT})",
    f"SELECT * FROM silver.accounts LATERAL VIEW explode(array({_REFLECT})) t AS x",
    "SELECT * FROM silver.accounts LATERAL VIEW reflect('java.lang.System', 'getenv', 'PATH') t AS x",
    f"SELECT * FROM explode(array({_REFLECT}))",
    f"SELECT * FROM range(length({_REFLECT}))",
    f"VALUES ({_REFLECT})",
    f"FROM silver.accounts |> SELECT {_REFLECT}",
    f"FROM silver.accounts |> WHERE {_REFLECT} = ''",
    f"WITH w AS (SELECT {_REFLECT}) SELECT * FROM w",
    f"DESCRIBE QUERY SELECT {_REFLECT}",
    f"EXPLAIN SELECT {_REFLECT}",
    f"CREATE TEMPORARY VIEW v AS SELECT {_REFLECT}",
    f"SELECT * FROM IDENTIFIER({_REFLECT})",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'PATH')",
    "SELECT input_file_name() FROM silver.accounts",
    "SELECT input_file_block_start() FROM silver.accounts",
    "SELECT from_xml('<a/>', 'a string', map('rowValidationXSDPath', '/etc/passwd'))",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
    """SELECT xpath_string('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', 'a')""",
    "SELECT from_avro(X'00', '\"string\"', map('avroSchemaUrl', '/etc/passwd'))",
    "SELECT schema_of_avro('\"string\"', map('avroSchemaUrl', '/etc/passwd'))",
    "SELECT from_protobuf(X'00', 'm', '/etc/passwd')",
    "SELECT to_protobuf(struct(1), 'm', '/etc/passwd')",
    f"SELECT from_csv('1', 'a int', map('codec', '{_CLASS}'))",
    f"SELECT to_csv(struct(1), map('Compression', '{_CLASS}'))",
    f"SELECT from_json('{{}}', 'a int', map(concat('co', 'dec'), '{_CLASS}'))",
    f"SELECT schema_of_json('{{}}', map('compression', '{_CLASS}'))",
    "SELECT hll_sketch_estimate(X'0A0107')",
    "SELECT kll_sketch_to_string_bigint(X'050F')",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM table_changes('silver.accounts', 0)",
    "SELECT a_function_of_a_later_spark(1)",
    "SELECT length(repeat(cast(id AS string), 1500000000)) FROM range(1)",
    "SELECT length(repeat(repeat('a', 1000), 1500000))",
    "SELECT length(space(1500000000))",
    "SELECT length(lpad('a', 1500000000, 'b'))",
    "SELECT length(rpad('a', 1500000000, 'b'))",
    "SELECT length(lpad(len => 1500000000, str => 'a'))",
    "SELECT size(array_repeat(id, 1500000000)) FROM range(1)",
    "SELECT size(array_insert(array(id), -1500000000, id)) FROM range(1)",
    "SELECT size(sequence(0, 1500000000))",
    "SELECT size(sequence(1500000000, 0, -1))",
    "SELECT size(sequence(timestamp_seconds(0), timestamp_seconds(9000), INTERVAL '0.000001' SECOND))",
    "SELECT length(randstr(1500000000))",
    "SELECT stack(1500000000, id) FROM range(1)",
    "SELECT * FROM stack(1500000000, 1)",
    "SELECT length(format_string('%,-2000000000d', id)) FROM range(1)",
    "SELECT length(printf('%1$.2000000000f', id * 1.0D)) FROM range(1)",
    "SELECT length(format_number(id, 1500000000)) FROM range(1)",
    "SELECT _metadata.file_path FROM silver.accounts",
    "SELECT _metadata FROM silver.accounts",
    "SELECT id FROM silver.accounts WHERE _metadata.file_name > ''",
    "SELECT max(a._metadata.file_path) FROM silver.accounts a",
    "SELECT current_user()",
    "SELECT current_user",
    "SELECT session_user()",
    "SELECT user",
    "SELECT count_min_sketch(id, 1e-9D, 0.95D, 1) FROM range(1)",
]
#: Queries that need more memory than there is, by what their rows have: each fails, and the server goes on.
LARGE = [
    "SELECT length(repeat('a', 1500000000 + cast(id AS int))) FROM range(1)",
    "SELECT size(array_repeat(id, 1500000000 + cast(id AS int))) FROM range(1)",
    "SELECT size(sequence(0, 1500000000 + id)) FROM range(1)",
]
#: Calls that are as Spark's own: the names of their columns, their rows, and why they fail.
AS_SPARK = [
    "SELECT repeat(name, id), lpad(name, id, '-'), format_string(name, id) FROM VALUES ('a', 2), ('b', 3) AS t(name, id)",
    "SELECT sequence(id, id + 1), array_repeat(name, id), space(id) FROM VALUES ('a', 2) AS t(name, id)",
    "SELECT format_string('%d of 123456', id), printf('%s: 1234567', id) FROM range(1)",
    "SELECT sequence(DATE'2026-01-01', DATE'2026-01-02', NULL), repeat(NULL, 2), space(NULL), sequence(1, NULL)",
    "SELECT sequence(timestamp_seconds(0), timestamp_seconds(2), make_dt_interval(0, 0, 0, id + 1)) FROM range(1)",
    "SELECT stack(4, 1, 2)",
    "SELECT * FROM stack(4, 1, 2)",
    "SELECT sequence(1, 10, 0)",
    "SELECT sequence(0, 1500000000, -1)",
    "SELECT repeat('a')",
    "SELECT stack(0, 1)",
    "SELECT space('many')",
]
#: Types that name a class.
TYPES = [f"SELECT from_json('\"a\"', '{_UDT}')", f"SELECT from_csv('a', '{_UDT}')"]


class Named(UserDefinedType):
    """A type whose class on the server is the client's choice."""

    @classmethod
    def sqlType(cls) -> StringType:  # noqa: N802 - PySpark's name.
        """Return how it is stored."""
        return StringType()

    @classmethod
    def module(cls) -> str:
        """Return where Python has it."""
        return __name__

    @classmethod
    def scalaUDT(cls) -> str:  # noqa: N802 - as above.
        """Return the class on the server."""
        return _CLASS


@udtf(returnType="a int")
class Rows:
    """A table function in Python."""

    def eval(self) -> Any:
        """Give a row."""
        yield (1,)


def requests(session: Any, place: str) -> dict[str, Any]:
    """Return by name what a client of Spark Connect may not do, each to be called; `place` is a table's path."""
    frame = session.table("silver.accounts")

    def selected(name: str, *arguments: Any) -> Any:
        return lambda: frame.select(call_function(name, *map(lit, arguments))).collect()

    def built(name: str) -> Any:
        arguments = [lit(each)._expr for each in ("java.lang.System", "getenv", "PATH")]
        return lambda: frame.select(Column(UnresolvedFunction(name, arguments))).collect()

    return {
        "a Python function": lambda: frame.select(udf(lambda it: it, "long")(col("id"))).collect(),
        "rows through Python": lambda: frame.mapInPandas(lambda it: it, "id long").collect(),
        "a function's name": lambda: session.udf.register("f", lambda it: it, "long"),
        "a Java function": lambda: session.udf.registerJavaFunction("f", "java.lang.Runtime"),
        "a table by its path": lambda: session.read.format("delta").load(place).collect(),
        "a file": lambda: session.read.text("/etc/passwd").collect(),
        "a database": lambda: session.read.jdbc("jdbc:derby:memory:x;create=true", "t").collect(),
        "a stream": lambda: session.readStream.table("silver.accounts").writeStream.format("noop").start(),
        "a write": lambda: frame.write.mode("overwrite").saveAsTable("silver.accounts"),
        "a write to a path": lambda: frame.write.mode("append").format("delta").save(place),
        "a second way to write": lambda: frame.writeTo("silver.accounts").append(),
        "a cache": lambda: frame.cache().count(),
        "a checkpoint": lambda: frame.checkpoint().count(),
        "an artifact": lambda: session.addArtifacts(__file__, pyfile=True),
        "a setting": lambda: session.conf.set("spark.sql.runSQLOnFiles", "true"),
        "a secret": lambda: session.conf.get("spark.hadoop.fs.s3a.secret.key"),
        "all settings": lambda: dict(session.conf.getAll),
        "a global view": lambda: frame.createOrReplaceGlobalTempView("v"),
        "a cached table": lambda: session.catalog.cacheTable("silver.accounts"),
        "a table made by the catalog": lambda: session.catalog.createTable("x", place, "delta"),
        "a reflected method": lambda: frame.selectExpr("reflect('java.lang.System', 'getenv', 'PATH')").collect(),
        "files of a frame": frame.inputFiles,
        "a function that is called": selected("reflect", "java.lang.System", "getenv", "PATH"),
        "a function by its full name": selected("system.builtin.reflect", "java.lang.System", "getenv", "PATH"),
        "a function in backticks": selected("`reflect`", "java.lang.System", "getenv", "PATH"),
        "a function of an expression": built("Reflect"),
        "the file of a row": selected("input_file_name"),
        "a column of files": lambda: frame.select(frame.metadataColumn("_metadata")).collect(),
        "the user of the server": selected("current_user"),
        "a schema at an address": selected("from_protobuf", b"", "m", "/etc/passwd"),
        "a class of the server": lambda: frame.select(lit(None).cast(Named())).collect(),
        "a table function in Python": lambda: Rows().collect(),
        "a table function": lambda: session.tvf.python_worker_logs().collect(),
        "a file in a format": lambda: session.read.format("csv").load("/etc/passwd").collect(),
        "a file in a catalog": lambda: session.table("text.`/etc/passwd`").collect(),
        "rows through Arrow": lambda: frame.mapInArrow(lambda it: it, "id long").collect(),
        "groups through Python": lambda: frame.groupBy("id").applyInPandas(lambda it: it, "id long").collect(),
        "a jar": lambda: session.addArtifacts("/tmp/x.jar"),
        "a table at a path": lambda: session.catalog.createExternalTable("y", place, "delta"),
        "a merge": lambda: frame.mergeInto("silver.tellers", lit(True)).whenMatched().delete().merge(),
    }
