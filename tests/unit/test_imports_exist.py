"""What files of ours import of ours is there, in tests too, which nothing else looks at before they run.

So is what programs import that tests run in other processes, which are texts.
"""

import ast
import re
from functools import cache
from pathlib import Path

from tests.unit.test_import_rules import PACKAGES, ROOT

OURS = (*PACKAGES, "tests", "examples")
_IN_A_TEXT = re.compile(rf"^ *(from (?:{'|'.join(OURS)})[\w.]* import [\w, ]+)$", re.MULTILINE)


def file_of(module: str) -> Path | None:
    """Return the file of a module of ours; None where there is none."""
    place = ROOT.joinpath(*module.split("."))
    return next((it for it in (place.with_suffix(".py"), place / "__init__.py") if it.is_file()), None)


@cache
def names_and_imports(source: str) -> tuple[frozenset[str], list[ast.ImportFrom]]:
    """Return the names that a source text binds, wherever in it, and its imports of ours."""
    names, imports = set(), []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            imports.append(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            imports += [part for line in _IN_A_TEXT.findall(node.value) for part in ast.parse(line).body]
    return frozenset(names), imports


@cache
def leads_somewhere(module: str, name: str) -> bool:
    """Whether a module of ours has something of this name, or a package a module."""
    if file_of(f"{module}.{name}") or ROOT.joinpath(*module.split("."), name).is_dir():
        return True
    file = file_of(module)
    return file is not None and name in names_and_imports(file.read_text(encoding="utf-8"))[0]


def lacking(source: str) -> list[str]:
    """Return the imports of ours in a source text that lead nowhere."""
    return [
        f"{node.lineno}: {node.module}.{alias.name}"
        for node in names_and_imports(source)[1]
        for alias in node.names
        if not leads_somewhere(str(node.module), alias.name)
    ]


def test_every_import_of_ours_leads_somewhere():
    files = {file for package in OURS for file in (ROOT / package).rglob("*.py")}
    # Tests of the structure have texts that import what is not there.
    files -= set((ROOT / "tests" / "unit").glob("*.py"))
    assert {str(file.relative_to(ROOT)): wrong for file in files if (wrong := lacking(file.read_text()))} == {}


def test_imports_that_lead_nowhere_are_seen():
    assert lacking("from edge.records import envelope\nfrom spark_jobs.bronze import gone\n") == [
        "2: spark_jobs.bronze.gone"
    ]
    assert lacking('PROGRAM = """\nfrom edge.records import gone\n"""\n') == ["1: edge.records.gone"]
    assert lacking("from tests.gone import one\nfrom headrace.errors import Gone, Retryable\n") == [
        "1: tests.gone.one",
        "2: headrace.errors.Gone",
    ]
