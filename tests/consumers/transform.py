"""A transform of Kafka Connect's, run on a topic's records as Connect runs it: JsonConverter with a schema, then the transform.

It ends with its `with`. Py4J, which PySpark carries, calls it.
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.consumers.environment import ENVIRONMENT
from tests.kafka.connect import java
from tests.kafka.reading import Record
from tests.servers import jars


class Transform:
    """A JVM with a transform, and converters for the keys and values of a table."""

    def __init__(self, name: str, key_schema: str, value_schema: str) -> None:
        self._name = name
        self._schemas = key_schema, value_schema

    def __enter__(self) -> Self:
        spec = importlib.util.find_spec("pyspark")
        (bridge,) = (Path(str(spec and spec.origin)).parent / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(bridge),
            classpath=os.pathsep.join(map(str, [*jars.connect(), *jars.iceberg_transforms()])),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            return_proc=True,
            java_path=str(java(ENVIRONMENT)),
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self._java = self._gateway.jvm
        self._key, self._value = (
            self._converter({"schemas.enable": "true", "schema.content": schema}, is_key=is_key)
            for schema, is_key in zip(self._schemas, (True, False), strict=True)
        )
        self._out = self._converter({"schemas.enable": "false", "decimal.format": "NUMERIC"}, is_key=False)
        at: Any = self._java
        for part in self._name.split("."):
            at = getattr(at, part)
        self._transform = at()
        self._transform.configure(self._java.java.util.HashMap())
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(60)

    def apply(self, topic: str, record: Record) -> Any:
        """Return the value that the transform makes of a record, as JSON's values; None where it leaves none."""
        key, value = (
            converter.toConnectData(topic, data)
            for converter, data in ((self._key, record.key), (self._value, record.value))
        )
        taken = self._java.org.apache.kafka.connect.sink.SinkRecord(
            topic, record.partition, key.schema(), key.value(), value.schema(), value.value(), record.offset
        )
        made = self._transform.apply(taken)
        if made is None or made.value() is None:
            return None
        return json.loads(bytes(self._out.fromConnectData(topic, made.valueSchema(), made.value())))

    def _converter(self, settings: dict[str, str], *, is_key: bool) -> Any:
        converter, given = self._java.org.apache.kafka.connect.json.JsonConverter(), self._java.java.util.HashMap()
        for name, value in settings.items():
            given.put(name, value)
        converter.configure(given, is_key)
        return converter
