"""Expectations of a table's rows as the lake's file has them: what can be checked of an expression without Spark.

A function is allowed where it computes from its arguments alone: the written list of `headrace lake serve`, which its Java has.
"""

import re
from functools import cache
from pathlib import Path

_LIST = Path(__file__).parents[2] / "spark_jobs" / "serve" / "Functions.java"
#: What a parenthesis may follow that is no function: words of SQL, and types with a size.
_WORDS = frozenset({"then", "else", "is", "distinct", "from", "as", "char", "varchar", "numeric", "dec", "character"})
#: Texts and quoted names, which hold no calls, and comments.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
#: Folders in which Spark's own functions are.
_FOLDERS = ("", "builtin", "system.builtin")


@cache
def allowed_functions() -> frozenset[str]:
    """Return the functions that an expression may call."""
    found = re.search(r'ALLOWED = Set\.of\("""(.*?)"""', _LIST.read_text("utf-8"), re.DOTALL)
    assert found is not None, "the list is in Functions.java"
    return frozenset(found[1].split())


def refuse_function(name: str) -> str | None:
    """Return why a function cannot be called; None where it can."""
    folder, _, own = name.lower().rpartition(".")
    if folder in _FOLDERS and own in allowed_functions():
        return None
    return f"the function {name} is refused: it is not among those that are known to compute from their arguments alone"


def find_problem(expression: str) -> str | None:
    """Return what is certainly wrong with an expression; None where Spark has to see it."""
    plain = _QUOTED.sub(lambda match: "''" if match[0][0] == "'" else " ", expression)
    if not plain.strip():
        return "it is empty"
    if "'" in plain.replace("''", "") or '"' in plain or "`" in plain:
        return "a quote is not closed"
    depth = 0
    for character in plain:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth:
        return "its parentheses do not match"
    if ";" in plain:
        return "it is more than one expression"
    calls = (name for name in _CALL.findall(plain) if name.lower() not in _WORDS)
    return next(filter(None, map(refuse_function, calls)), None)
