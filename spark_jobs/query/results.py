"""The rows of an answer as a table, JSON lines, CSV or Parquet, written as they come: no answer has to fit into memory.

Values are Spark's own text, never converted: decimals and bigints keep every digit, times their microseconds. Only what a
terminal would take for a command is shown by its code.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, TextIO

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.
from rich.table import Table

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from headrace.printable import printable
from headrace.terminal import uncut
from spark_jobs import storage, tuning
from spark_jobs.errors import explained, readable

Form = Literal["table", "json", "csv"]
Cells = Sequence[str | None]

#: Nulls are values too, and Spark would cut times to milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
#: Rows of a printed table; a longer answer is several, since the widths of columns follow the rows.
_ROWS = 1000


def write(answer: DataFrame, form: Form, to: TextIO, *, most: int | None = None) -> None:
    """Write the answer's rows, at most `most` of them.

    Columns of an answer may share a name: CSV and tables distinguish them by order, JSON calls the second `name_2`.
    """
    names = answer.columns
    if not names:
        return
    with explained("sql"):
        placed = answer.toDF(*(str(place) for place in range(len(names))))
        if form == "json":
            fields = (F.col(c).alias(name) for c, name in zip(placed.columns, distinct(names), strict=True))
            placed = placed.select(F.to_json(F.struct(*fields), _JSON))
        else:
            placed = placed.select(*(_text(placed, c).alias(c) for c in placed.columns))
        rows: Iterable[Cells] = placed.toLocalIterator() if most is None else placed.limit(most).collect()
        if form == "csv":
            shown = printable if to.isatty() else str
            to.write(shown(csv_line(names)))
            to.writelines(shown(csv_line(row)) for row in rows)
        elif form == "json":
            to.writelines(f"{row[0]}\n" for row in rows)
        else:
            _print(names, iter(rows), to)


def write_parquet(answer: DataFrame, folder: str, lake: LakeFile) -> None:
    """Write the answer into a new folder of Parquet files, with its own types; raise ConfigurationError when it cannot be."""
    spark = answer.sparkSession
    with explained("sql"):
        elsewhere = not tuning.is_local(spark.sparkContext.master) and storage.is_local(spark, folder)
        if elsewhere and storage.exists(spark, folder):
            raise ConfigurationError(f"{folder} exists: name a folder that is to be made")
        # Executors on other machines would write on their own disks.
        place = f"{storage.scratch_root(lake)}/{storage.new_scratch_name()}" if elsewhere else folder
        try:
            answer.write.parquet(place)
        except AnalysisException as error:
            raise ConfigurationError(readable(error)) from error
        if elsewhere:
            storage.bring(spark, place, folder)


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, each once: the second `id` is `id_2`, unless another column is called so."""
    taken, seen, unique_names = set(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        new = name
        while seen[name] > 1 and new in taken:
            new = f"{name}_{seen[name]}"
            seen[name] += new in taken
        taken.add(new)
        unique_names.append(new)
    return unique_names


def csv_line(cells: Cells) -> str:
    """Return a line of CSV as PostgreSQL writes it: NULL is nothing at all, an empty text is `""`."""
    return ",".join(map(_csv_cell, cells)) + "\n"


def _csv_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    if cell and not set(cell) & set('",\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _text(frame: DataFrame, column: str) -> Column:
    """Return a column as text; bytes are base64, as JSON has them."""
    return F.base64(column) if isinstance(frame.schema[column].dataType, T.BinaryType) else F.col(column).cast("string")


def _print(names: Sequence[str], rows: Iterator[Cells], to: TextIO) -> None:
    console = uncut(to)
    some = list(islice(rows, _ROWS))
    while True:
        table = Table(*names)
        for row in some:
            table.add_row(*("NULL" if cell is None else cell for cell in row))
        console.print(table)
        if len(some) < _ROWS or not (some := list(islice(rows, _ROWS))):
            return
