"""Names of columns in silver that cannot have the name that they have at their source (spark_jobs/silver/target_schema.py)."""

import hashlib
import re
from collections.abc import Collection

_SUFFIX = 8
#: Characters that names of columns have in Parquet only where a table maps its names.
_MAPPED = re.compile(r"[ ,;{}()\n\t=]")


def is_mapped(name: str) -> bool:
    """Whether a table maps its names where a column has this one."""
    return bool(_MAPPED.search(name))


def add_suffix(name: str) -> str:
    """Return the name that a column has which cannot have its own one."""
    return f"{name}_{hashlib.sha256(name.encode()).hexdigest()[:_SUFFIX]}"


def open_name(name: str) -> str:
    """Return the name that a column has where its table maps no names, and Parquet does not take its own one."""
    return _MAPPED.sub("_", add_suffix(name))


def find_stored(name: str, columns: Collection[str]) -> str:
    """Return the name that a source's column has among those of a silver table, whether it is there or not."""
    return next((other for other in (add_suffix(name), open_name(name)) if other in columns), name)
