"""What files of ours import of ours is there, in tests too, which nothing else looks at before they run."""

import ast
from functools import cache
from pathlib import Path

from tests.unit.test_import_rules import PACKAGES, ROOT

OURS = (*PACKAGES, "tests", "examples")


def file_of(module: str) -> Path | None:
    """Return the file of a module of ours; None where there is none."""
    place = ROOT.joinpath(*module.split("."))
    return next((it for it in (place.with_suffix(".py"), place / "__init__.py") if it.is_file()), None)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names that a module binds, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return frozenset(names)


def lacking(source: str) -> list[str]:
    """Return the imports of ours in a source text that lead nowhere."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.module.partition(".")[0] not in OURS:
            continue
        file = file_of(node.module)
        is_package = ROOT.joinpath(*node.module.split(".")).is_dir()
        for alias in node.names:
            there = file_of(f"{node.module}.{alias.name}") or (file is not None and alias.name in names_in(file))
            if not there and not (is_package and ROOT.joinpath(*node.module.split("."), alias.name).is_dir()):
                wrong.append(f"{node.lineno}: {node.module}.{alias.name}")
    return wrong


def test_every_import_of_ours_leads_somewhere():
    files = [file for package in OURS for file in sorted((ROOT / package).rglob("*.py"))]
    assert {str(file.relative_to(ROOT)): wrong for file in files if (wrong := lacking(file.read_text()))} == {}


def test_imports_that_lead_nowhere_are_seen():
    assert lacking("from edge.records import envelope\nfrom spark_jobs.bronze import gone\n") == [
        "2: spark_jobs.bronze.gone"
    ]
    assert lacking("from tests.gone import one\nfrom headrace.errors import Gone, Retryable\n") == [
        "1: tests.gone.one",
        "2: headrace.errors.Gone",
    ]
