"""Which name a column has in silver: the source's own, unless SQL could not distinguish it from another one.

Spark and Delta ignore case: of columns that differ by case alone the one in lower case keeps its name, and the others get a
suffix made of the source's own name, as does a column that is named like one of silver's own. So a name does not depend on the
order in which columns appear. Pure; called by target_schema.py, by verification and by the list of tables.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

#: Names of columns that silver adds, or that a load adds while it works.
RESERVED = frozenset(
    {"_source", "_position", "_commit_time", "_deleted_at", "_nan"}
    | {"_op", "_key", "_old_key", "_unchanged", "_seed", "_moved", "_rank"}
)
_SUFFIX = 8


def renamed(names: Iterable[str]) -> dict[str, str]:
    """Return silver's name of each of a table's columns that cannot have its own one, by the source's name."""
    distinct = set(names)
    of_fold = Counter(map(fold, distinct))
    return {
        name: suffixed(name)
        for name in sorted(distinct)
        if fold(name) in RESERVED or (of_fold[fold(name)] > 1 and name != fold(name))
    }


def stored(name: str, columns: Collection[str]) -> str:
    """Return the name that a source's column has among those of a silver table, whether it is there or not."""
    return suffixed(name) if suffixed(name) in columns else name


def former(name: str, columns: Collection[str], known: Mapping[str, str]) -> str | None:
    """Return the stored column that may hold a source's column under another name than its present one; None when there is none.

    `columns` are the table's now, by their names in silver; `known` has the stored columns by their folded names.
    """
    candidates = (known.get(fold(name)), known.get(fold(suffixed(name))))
    return next((one for one in candidates if one is not None and one not in columns), None)


def suffixed(name: str) -> str:
    """Return the name that a column has which cannot have its own one."""
    return f"{name}_{hashlib.sha256(name.encode()).hexdigest()[:_SUFFIX]}"


def fold(name: str) -> str:
    """Return the form that names have in common between which Spark does not distinguish."""
    # Java compares characters in upper case and in lower case.
    return name.upper().casefold()
