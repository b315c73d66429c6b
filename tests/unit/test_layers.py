"""The layers of each package: a module imports from layers below its own and its own package; nothing is in a circle."""

import pytest

from tests.unit.test_import_rules import Module, all_modules, inside

#: From the lowest up. What is in one line imports nothing of the others there; edge/__init__.py and its siblings explain them.
LAYERS = {
    "headrace": (
        {"__version__", "errors", "printable", "status.answer", "waiting"},
        {"formats", "terminal"},
        {"configuration", "files", "findings", "position", "schema", "warm_loads"},
        {"logs"},
        {"doors"},
        {"batch", "metrics", "registry", "retention", "schemas", "status"},
        {"certificates", "lake", "process", "requests"},
        {"amqp", "source_command", "verify"},
        {"console", "receive"},
        {"command"},
        {"__main__"},
    ),
    "edge": (
        {"compiled", "observability", "records", "requests"},
        {"delivery"},
        {"progress"},
        {"snapshot"},
        {"engine"},
        {"mysql", "postgres"},
        {"debezium"},
        {"engine_registry"},
        {"doctor"},
        {"answers"},
        {"session"},
        {"agent", "commands"},
        {"command"},
    ),
    "bridge": (
        {"model"},
        {"metrics"},
        {"kafka"},
        {"routing"},
        {"positions"},
        {"source"},
        {"lanes"},
        {"deliveries", "group", "withheld"},
        {"requests"},
        {"amqp"},
        {"doctor", "reloader", "service", "whole_topics"},
        {"bridge"},
        {"command"},
    ),
    "spark_jobs": (
        {"errors", "log_store", "storage", "tuning"},
        {"state"},
        {"session"},
        {"kafka"},
        {"bronze"},
        {"silver"},
        {"lineage", "run_log"},
        {"query"},
        {"verify"},
        {"maintenance"},
        {"load"},
        {"continuous", "preflight"},
        {"serve"},
        {"table_command"},
        {"removal_command"},
        {"command", "jvm_warmup", "submit"},
    ),
}


def layer_violations(modules: list[Module]) -> list[str]:
    """Return a sentence for each import that points to a layer above, next to the importing one, or to no layer."""
    violations = []
    for module in modules:
        package = module.name.partition(".")[0]
        if package not in LAYERS or module.name == package:
            continue
        level, layer = layer_of(module.name)
        for name, line in module.imports:
            if inside(name, package) and name != package:
                other, imported = layer_of(name)
                if imported != layer and other >= level:
                    violations.append(f"{module.name}:{line} imports {name}")
    return sorted(set(violations))


def layer_of(name: str) -> tuple[int, str]:
    """Return the number of a module's layer and the longest entry that covers the module; a level above all if none does."""
    package, _, rest = name.partition(".")
    matches = [
        (level, entry) for level, entries in enumerate(LAYERS[package]) for entry in entries if inside(rest, entry)
    ]
    return max(matches, key=lambda match: len(match[1]), default=(len(LAYERS[package]), ""))


def circles(modules: list[Module]) -> list[list[str]]:
    """Return the groups of modules in which each one imports, by way of others, itself (Tarjan's algorithm)."""
    names = {module.name for module in modules}
    graph = {
        module.name: {
            target for name, _ in module.imports if (target := _module(name, names)) not in (None, module.name)
        }
        for module in modules
    }
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(group := stack[at:]) > 1:
                groups.append(sorted(group))
            del stack[at:]

    for name in graph:
        if name not in order:
            visit(name)
    return groups


def _module(name: str, modules: set[str]) -> str | None:
    """Return the module that an imported name is, or is in."""
    return next((it for it in (name, name.rpartition(".")[0]) if it in modules), None)


def test_the_layers_of_each_package_point_one_way_and_have_each_module():
    modules = all_modules()

    assert layer_violations(modules) == []
    for package, layers in LAYERS.items():
        entries = {layer_of(it.name)[1] for it in modules if inside(it.name, package) and it.name != package}
        assert entries == set().union(*layers) - {"__version__"}, package


def test_no_modules_import_each_other_in_a_circle():
    assert circles(all_modules()) == []


def test_a_circle_is_shown():
    modules = [
        Module("edge.a", "from edge.b import B"),
        Module("edge.b", "def late():\n    from edge import c"),
        Module("edge.c", "import edge.a"),
        Module("edge.d", "from edge.c import C"),
    ]

    assert circles(modules) == [["edge.a", "edge.b", "edge.c"]]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("edge.records.batcher", "from edge.delivery.outbox import Outbox"),
        ("edge.delivery.outbox", "from edge.progress import spool"),
        ("edge.postgres.engine", "from edge.mysql import gtid"),
        ("edge.snapshot.plan", "from edge.engine_registry import engine_of"),
        ("edge.engine", "from edge.agent import Agent"),
        ("bridge.kafka.client", "from bridge.source.session import Session"),
        ("bridge.requests.worker", "from bridge.amqp import links"),
        ("headrace.position", "from headrace.batch import Batch"),
        ("headrace.certificates.files", "from headrace.amqp import security"),
        ("spark_jobs.bronze.load", "from spark_jobs.silver import merge"),
        ("spark_jobs.state.published", "def late():\n    from spark_jobs.silver.load import load"),
        ("spark_jobs.load", "from spark_jobs import preflight"),
        ("spark_jobs.verify.lake", "from spark_jobs.maintenance import maintain"),
        ("spark_jobs.silver.load", "from spark_jobs import elsewhere"),
    ],
)
def test_an_import_against_the_layers_is_objected_to(name, source):
    (objection,) = layer_violations([Module(name, source)])

    assert objection.startswith(name)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("spark_jobs.silver.merge", "from headrace.schema import TableSchema\nfrom ..session import session"),
        ("spark_jobs.silver.merge", "from spark_jobs import storage\nfrom spark_jobs.silver import types"),
        ("headrace.requests", "from headrace.status.answer import Answer"),
    ],
)
def test_an_import_along_the_layers_is_not(name, source):
    assert layer_violations([Module(name, source)]) == []
