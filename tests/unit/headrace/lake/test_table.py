"""Times of 96 bits as Spark writes them, beyond what Arrow makes of them."""

import struct

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.table import of_int96

DAY = 86_400_000_000
#: PostgreSQL's `infinity` and `-infinity`, as a load has them, and times that others read as well.
TIMES = [2**63 - 1, -(2**63), 0, 1769850900250000, -62135596800000000, 253402300799999999, 9_000_000_000_000_000_000]


def of_spark(micros):
    """Return the bytes that Spark writes: its sum wraps, and what is divided keeps its sign."""
    julian = (micros + 2_440_588 * DAY + 2**63) % 2**64 - 2**63
    days, rest = divmod(abs(julian), DAY)
    sign = 1 if julian >= 0 else -1
    return struct.pack("<qi", sign * rest * 1000, sign * days)


def test_times_beyond_arrow_are_those_that_spark_wrote(tmp_path):
    path = tmp_path / "times.parquet"
    # Arrow writes such times too, but none that wraps: these are put in place of ordinary ones.
    marks = [10**15 + place * DAY for place in range(len(TIMES))]
    table = pa.table({"t": pa.array(marks, pa.timestamp("us"))})
    plain = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **plain)
    content = path.read_bytes()
    for mark, time in zip(marks, TIMES, strict=True):
        assert content.count(of_spark(mark)) == 1
        content = content.replace(of_spark(mark), of_spark(time))
    path.write_bytes(content)

    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        (column,) = file.read().combine_chunks().column("t").chunks

    assert of_int96(column).cast("int64").to_pylist() == TIMES
