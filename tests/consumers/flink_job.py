"""A job of Flink's SQL in a cluster of one JVM, with its Kafka connector; Py4J, which PySpark carries, calls it."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.servers import jars

#: Flink 1.20 reads fields of the JDK's own classes.
_OPENED = ("lang", "net", "util", "util.concurrent", "time", "nio", "text", "io")


def rows(script: str) -> list[dict[str, Any]]:
    """Return the rows that the last statement of a script ends with, as texts; the job reads to the end of its topics."""
    *tables, question = (statement for statement in script.split(";") if statement.strip())
    spec = importlib.util.find_spec("pyspark")
    (bridge,) = (Path(str(spec and spec.origin)).parent / "jars").glob("py4j-*.jar")
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    port, process = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join(map(str, jars.flink_job())),
        javaopts=["-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened],
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        api = gateway.jvm.org.apache.flink.table.api
        environment = api.TableEnvironment.create(api.EnvironmentSettings.newInstance().inStreamingMode().build())
        environment.getConfig().set("parallelism.default", "1")
        for statement in tables:
            environment.executeSql(statement)
        result = environment.executeSql(question)
        names = list(result.getResolvedSchema().getColumnNames())
        results: list[tuple[Any, ...]] = []
        changes = result.collect()
        while changes.hasNext():
            change = changes.next()
            row = tuple(_text(change.getField(at)) for at in range(len(names)))
            # A changelog: rows come (+I, +U) and go (-U, -D).
            if change.getKind().shortString().startswith("+"):
                results.append(row)
            else:
                results.remove(row)
        return [dict(zip(names, row, strict=True)) for row in results]
    finally:
        gateway.shutdown()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait(60)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
