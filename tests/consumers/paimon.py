"""Paimon's parser of Debezium's records, as its Kafka synchronisation runs it, driven from here; it ends with its `with`."""

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.servers import jars


class Paimon:
    """A JVM with Paimon's parser, on Flink's classes."""

    def __enter__(self) -> Self:
        spec = importlib.util.find_spec("pyspark")
        (bridge,) = (Path(str(spec and spec.origin)).parent / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(bridge),
            classpath=os.pathsep.join(map(str, jars.paimon())),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(60)

    def rows(self, topic: str, values: Iterable[bytes], key: str) -> dict[str, dict[str, str | None]]:
        """Return the rows that a topic's records make in a table with a primary key, as texts by their key.

        Raises Py4JJavaError for a record that the parser does not take.
        """
        java = self._gateway.jvm
        cdc = java.org.apache.paimon.flink.action.cdc
        mapping, none = cdc.TypeMapping.defaultMapping(), java.java.util.ArrayList()
        parser = cdc.format.debezium.DebeziumJsonRecordParser(mapping, none)
        mapper = java.org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper()
        out = java.java.util.ArrayList()
        collector = java.org.apache.flink.api.common.functions.util.ListCollector(out)
        for value in values:
            parser.flatMap(cdc.CdcSourceRecord(topic, None, mapper.readTree(value.decode())), collector)
        rows: dict[str, dict[str, str | None]] = {}
        for each in out:
            change = each.toRichCdcRecord()
            row = dict(change.toCdcRecord().data())
            if change.kind().shortString().startswith("-"):
                rows.pop(row[key], None)
            else:
                rows[row[key]] = row
        return rows
