"""Reads the lake's own small tables with `deltalake`: no JVM, and tables with deletion vectors are read as they are.

The root may be a folder of this machine, or an object store that `deltalake` knows: `s3://` (and `s3a://`), `gs://`, `abfss://`
and `az://`, with the credentials of this process's environment (`AWS_ACCESS_KEY_ID`, …). HDFS is not supported.
The package is imported on the first read, so that a console without a lake does not need it.
"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.errors import NotConnected

#: What Spark calls S3, and what `deltalake` does.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_KNOWN = {"", "file", "s3", "gs", "abfss", "abfs", "az", "adl"}

Row = dict[str, Any]


class NoTable(NotConnected):
    """There is no such table yet."""


class LakeReader:
    """The tables under one root. A table whose version did not change since the last read is not read again."""

    def __init__(self, root: str) -> None:
        self._root = _location(root)
        self._read: dict[tuple[str, str], tuple[str, list[Row]]] = {}

    def rows(self, table: str, query: str) -> list[Row]:
        """Return the rows of a query over a table, which the query calls by its name.

        Raises:
            NoTable: there is no such table.
            NotConnected: it cannot be read, and why.
        """
        try:
            from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - only where a lake is shown.
            from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415 - as above.
        except ModuleNotFoundError as error:
            raise NotConnected(
                "the package deltalake is not installed", hint="Install Headrace with the extra 'console'."
            ) from error
        place = f"{self._root}/{table}"
        if self._is_missing(place):
            raise NoTable(f"{place} is not there")
        try:
            opened = DeltaTable(place)
            mark = f"{opened.version()} {opened.metadata().id}"
            known = self._read.get((table, query))
            if known is None or known[0] != mark:
                found = QueryBuilder().register(table, opened).execute(query)
                known = self._read[table, query] = (mark, found.read_all().to_struct_array().to_pylist())
        except TableNotFoundError as error:
            raise NoTable(f"{place} is not there") from error
        except Exception as error:
            # Of the library's engines each has errors of its own, none of which is a reason to end the console.
            raise NotConnected(f"{place} cannot be read: {str(error).splitlines()[0][:300]}") from error
        return known[1]

    def _is_missing(self, place: str) -> bool:
        return not urlsplit(place).scheme and not Path(place, "_delta_log").is_dir()


def _location(root: str) -> str:
    """Return the root as `deltalake` takes it; raise NotConnected for a file system that it does not know."""
    parts = urlsplit(root)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme not in _KNOWN:
        raise NotConnected(
            f"{root}: a lake on {parts.scheme}:// cannot be read without Spark",
            hint="The console reads folders of this machine, S3, Google Cloud Storage and Azure.",
        )
    if scheme in {"", "file"}:
        return unquote(parts.path)
    return parts._replace(scheme=scheme).geturl().rstrip("/")
