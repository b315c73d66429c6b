"""Flink's `debezium-json` format, as Flink ships it, driven from here: a reader of Debezium's records that is not ours.

`Flink` is a JVM with the format's jars and nothing of ours; it ends with its `with`. Py4J, which PySpark carries, calls it.
"""

import importlib.util
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.servers import jars

#: How a row's value is read as text, by the type of its column.
_TEXT = {
    "INT": lambda row, at: str(row.getInt(at)),
    "BIGINT": lambda row, at: str(row.getLong(at)),
    "STRING": lambda row, at: row.getString(at).toString(),
    "BOOLEAN": lambda row, at: str(row.getBoolean(at)).lower(),
    "DOUBLE": lambda row, at: repr(row.getDouble(at)),
    "DECIMAL": lambda row, at: row.getDecimal(at, 18, 2).toString(),
    "DATE": lambda row, at: str(row.getInt(at)),
    "TIMESTAMP_LTZ": lambda row, at: str(row.getTimestamp(at, 6).getMillisecond()),
    "TIMESTAMP": lambda row, at: row.getTimestamp(at, 6).toString(),
    "BYTES": lambda row, at: bytes(row.getBinary(at)).hex(),
}
_ARGUMENTS = {"DECIMAL": (18, 2), "TIMESTAMP_LTZ": (6,), "TIMESTAMP": (6,)}


class Flink:
    """A JVM with Flink's format."""

    def __enter__(self) -> Self:
        spec = importlib.util.find_spec("pyspark")
        (bridge,) = (Path(str(spec and spec.origin)).parent / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(bridge),
            classpath=":".join(map(str, jars.flink())),
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

    def rows(self, columns: dict[str, str], values: Iterable[bytes | None]) -> Counter[tuple[str | None, ...]]:
        """Return the rows of the table that a topic's records make, as texts, each with how often it is there.

        Raises Py4JJavaError for a record that the format does not take.
        """
        java = self._gateway.jvm
        schema, out = self._schema(java, columns), java.java.util.ArrayList()
        collector = java.org.apache.flink.api.common.functions.util.ListCollector(out)
        schema.open(None)
        for value in values:
            schema.deserialize(value, collector)
        counts: Counter[tuple[str | None, ...]] = Counter()
        for row in out:
            texts = tuple(
                None if row.isNullAt(at) else _TEXT[kind](row, at) for at, kind in enumerate(columns.values())
            )
            # A changelog: rows come (+I, +U) and go (-U, -D).
            counts[texts] += 1 if row.getRowKind().shortString().startswith("+") else -1
        assert all(count >= 0 for count in counts.values()), "a row goes that never came"
        return +counts

    def _schema(self, java: Any, columns: dict[str, str]) -> Any:
        flink = java.org.apache.flink
        types = flink.table.api.DataTypes
        fields = self._gateway.new_array(flink.table.api.DataTypes.Field, len(columns))
        for at, (name, kind) in enumerate(columns.items()):
            fields[at] = types.FIELD(name, getattr(types, kind)(*_ARGUMENTS.get(kind, ())))
        row = types.ROW(fields)
        info = flink.table.runtime.typeutils.InternalTypeInfo.of(row.getLogicalType())
        iso = flink.formats.common.TimestampFormat.ISO_8601
        # No schema in the records, and an error for whatever cannot be read.
        format_of = flink.formats.json.debezium.DebeziumJsonDeserializationSchema
        return format_of(row, java.java.util.ArrayList(), info, False, False, iso)
