"""The statements of an SQL script, and which may run: queries, not what writes. Called by `headrace lake sql` and its prompt."""

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import ConfigurationError

#: What can hold a `;` that ends nothing, and the `;` that does. Backslashes escape in a text, but not in a raw one.
_TOKENS = re.compile(
    r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)""",
    re.DOTALL,
)
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
#: Commands that only show something, or change this session alone.
_SHOWING = ("Show", "Describe", "Explain", "SetCommand", "ResetCommand", "SetCatalog", "SetNamespace")
#: Plans that write, or run what nobody has looked at, and are no commands to Spark's parser: `InsertIntoDir`, Delta's
#: `RestoreTableStatement` and `CloneTableStatement`, scripts.
_WRITING = re.compile(
    r"(Insert|Append|Overwrite|Create|Replace|Delete|Update|Merge|Compound|Delta).*|.*Statement|.*ExecuteImmediate.*"
)
_TEMPORARY = "LocalTempView$"


def split(script: str) -> list[str]:
    """Return the statements of a script, without the semicolons that end them; those of comments alone are left out."""
    found, start = [], 0
    for token in [*_TOKENS.finditer(script), None]:
        if token is None or token["end"]:
            statement = script[start : token.start() if token else None].strip()
            if _TOKENS.sub(lambda it: "" if it["comment"] else it[0], statement).strip():
                found.append(statement)
            start = token.end() if token else start
    return found


def refuse_writes(spark: SparkSession, statement: str) -> None:
    """Raise ConfigurationError for a statement that writes: the lake's tables are written by loads alone.

    Raises PySpark's ParseException for one that cannot be understood.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001 - PySpark offers no other way.
    command = spark._jvm.java.lang.Class.forName(_COMMAND)  # noqa: SLF001 - as above.
    for node in _nodes(plan):
        name = str(node.getClass().getSimpleName())
        if name == "CreateViewCommand" and node.viewType().getClass().getSimpleName() == _TEMPORARY:
            continue
        if name.startswith(_SHOWING):
            continue
        if command.isInstance(node) or _WRITING.fullmatch(name):
            raise ConfigurationError(
                f"this statement is refused since it is not a query ({name})",
                hint="The lake's tables are written by loads alone. SELECT, SHOW, DESCRIBE, EXPLAIN, USE, SET and CREATE "
                "TEMPORARY VIEW can be run; '--format parquet --to FOLDER' writes an answer elsewhere.",
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))
