"""The jars that Spark and Kafka need: fetched once, pinned, each group in a folder of its own.

Guarantees that a group is either complete (every file has the size its manifest names, for the pins below) or absent;
a fetch that was cut off is done again. Assumes Java on PATH and PySpark installed, whose jars include Ivy.
`make setup` runs it (`python -m infra.local.jars`); everything else only asks for the paths.
"""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console

from headrace.errors import NeedsOperator, NotConnected, ReplicationError

_MANIFEST = "manifest.json"
_UNREACHABLE = re.compile(
    r"UnknownHost|Host .* not found|Connection (refused|timed out|reset)|SERVER ERROR|timed out|No route to host|"
    r"NoRouteToHost|SSLHandshake|Temporary failure|Network is unreachable",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Jars that share one class path, and so are resolved together."""

    name: str
    #: Maven coordinates, `organisation:module:revision`.
    pins: tuple[str, ...]
    #: Coordinates that replace whatever revision the pins would bring.
    overrides: tuple[str, ...] = ()
    #: Whether the jars join PySpark's own, of which they must then repeat none.
    beside_spark: bool = False
    #: `organisation:module` of what is not wanted.
    excluded: tuple[str, ...] = ()


SPARK = Group(
    name="spark",
    pins=(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    ),
    overrides=(
        # Revision 4.2.0 of this one cannot be resolved. 4.0.0 differs only in Kerberos delegation tokens.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        # Delta asks for 2.13.5; a Jackson module belongs beside the Jackson of its own release, here PySpark's.
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
    ),
    beside_spark=True,
    # Part of RoaringBitmap itself in the release that PySpark carries.
    excluded=("org.roaringbitmap:shims",),
)
KAFKA = Group(
    name="kafka",
    pins=(
        "org.apache.kafka:kafka_2.13:4.3.0",
        # Kafka logs through SLF4J 1.7: without this binding its log4j2 configuration has no effect.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
GROUPS = (SPARK, KAFKA)


def spark() -> list[Path]:
    """Return the jars to add to PySpark's own; raise NeedsOperator if they are not there."""
    return _present(SPARK)


def kafka() -> list[Path]:
    """Return the class path of the Kafka broker; raise NeedsOperator if it is not there."""
    return _present(KAFKA)


def folder() -> Path:
    """Return the folder of all groups: HEADRACE_JARS, or `.setup/jars` in the checkout."""
    if named := os.environ.get("HEADRACE_JARS"):
        return Path(named).absolute()
    return Path(__file__).resolve().parents[2] / ".setup" / "jars"


def fetch(group: Group, into: Path, console: Console) -> None:
    """Make the group complete in its folder; do nothing if it is.

    Raises NotConnected if the repository cannot be reached, NeedsOperator if a jar cannot be had.
    """
    target = into / group.name
    if _complete(group, target):
        console.print(f"headrace: jars/{group.name}: complete, {_describe(_files(target))}")
        return
    partial = into / f"{group.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    console.print(f"headrace: jars/{group.name}: fetching {', '.join(group.pins)} and what they need")
    _resolve(group, partial, into / "cache", console)
    files = _files(partial)
    for jar in partial.glob("*.jar"):
        if not zipfile.is_zipfile(jar):
            raise NeedsOperator(f"The fetched jar {jar.name} is damaged.", hint="Run make setup again.")
    (partial / _MANIFEST).write_text(json.dumps({"pins": _pins(group), "files": files}, indent=1))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    console.print(f"headrace: jars/{group.name}: fetched {_describe(files)}")


def fetch_all(into: Path, console: Console) -> None:
    """Make every group complete; one process at a time does it, others wait."""
    into.mkdir(parents=True, exist_ok=True)
    with _locked(into / ".lock"):
        for group in GROUPS:
            fetch(group, into, console)
        shutil.rmtree(into / "cache", ignore_errors=True)


def _present(group: Group) -> list[Path]:
    target = folder() / group.name
    if not _complete(group, target):
        raise NeedsOperator(
            f"The {group.name} jars are not complete in {target}.",
            hint="Run make setup, which fetches them once; HEADRACE_JARS names another folder.",
        )
    return sorted(target.glob("*.jar"))


def _complete(group: Group, target: Path) -> bool:
    try:
        manifest = json.loads((target / _MANIFEST).read_text())
        return bool(manifest["pins"] == _pins(group) and manifest["files"] and manifest["files"] == _files(target))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _pins(group: Group) -> list[str]:
    return [*group.pins, *group.overrides]


def _files(target: Path) -> dict[str, int]:
    return {jar.name: jar.stat().st_size for jar in sorted(target.glob("*.jar"))}


def _describe(files: dict[str, int]) -> str:
    return f"{len(files)} jars, {sum(files.values()) // 1_000_000} MB"


def _resolve(group: Group, into: Path, cache: Path, console: Console) -> None:
    request = into / "ivy.xml"
    request.write_text(_ivy_file(group))
    command = ["java", "-jar", str(_ivy_jar()), "-cache", str(cache), "-ivy", str(request), "-confs", "default"]
    # OSGi bundles (Snappy among them) are jars by another name; sources and documentation are other types.
    command += ["-types", "jar", "bundle"]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).jar"]
    if settings := os.environ.get("HEADRACE_IVY_SETTINGS"):
        command += ["-settings", settings]
    try:
        code, output = _run(command, console, group.name)
    except FileNotFoundError:
        raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.") from None
    request.unlink()
    if code != 0:
        raise _failure(group, output)


def _run(command: list[str], console: Console, name: str) -> tuple[int, str]:
    output: list[str] = []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        console.status(f"jars/{name}: resolving") as status,
    ):
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if found := re.search(r"(?:SUCCESSFUL \]|found) \S+#(\S+?)(?:!| in|$)", line):
                status.update(f"jars/{name}: {found[1]}")
    return ivy.returncode, "".join(output)


def _failure(group: Group, output: str) -> ReplicationError:
    missing = sorted(set(re.findall(r":: (?!headrace#)([^\s:]+#[^\s:]+;[^\s:!]+)", output)))
    what = ", ".join(missing) or ", ".join(group.pins)
    if _UNREACHABLE.search(output):
        return NotConnected(
            f"The {group.name} jars cannot be fetched: the Maven repository cannot be reached ({what}).",
            hint="Check the network and run make setup again: it goes on with what is missing. Behind a proxy set "
            "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT; for a mirror name an Ivy settings "
            "file in HEADRACE_IVY_SETTINGS.",
        )
    return NeedsOperator(
        f"The {group.name} jars cannot be fetched: not found or not usable: {what}.",
        hint="Check the pins in infra/local/jars.py, and the repository in HEADRACE_IVY_SETTINGS if it is set.",
    )


def _ivy_file(group: Group) -> str:
    def attributes(coordinates: str, *names: str) -> str:
        return " ".join(f"{name}={quoteattr(part)}" for name, part in zip(names, coordinates.split(":"), strict=True))

    excluded = [*group.excluded, *(f"*:{name}" for name in (_carried_by_spark() if group.beside_spark else []))]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            f'<info organisation="headrace" module="{group.name}"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *(
                f'<dependency {attributes(it, "org", "name", "rev")} conf="default->master,runtime"/>'
                for it in group.pins
            ),
            *(f"<exclude {attributes(it, 'org', 'module')}/>" for it in excluded),
            *(f"<override {attributes(it, 'org', 'module', 'rev')}/>" for it in group.overrides),
            "</dependencies>",
            "</ivy-module>",
        ],
    )


def _carried_by_spark() -> list[str]:
    names = (re.sub(r"-\d[\w.]*(-.*)?$", "", jar.stem) for jar in _pyspark_jars().glob("*.jar"))
    return sorted(set(names))


def _pyspark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NeedsOperator("PySpark is not installed.", hint="Run make setup.")
    return Path(found.origin).parent / "jars"


def _ivy_jar() -> Path:
    found = sorted(_pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise NeedsOperator(f"There is no Ivy in {_pyspark_jars()}.", hint="Run make setup.")
    return found[-1]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Fetch what is missing; exit with the code of the error, if there is one."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        fetch_all(folder(), console)
    except ReplicationError as error:
        console.print(f"headrace: {error.message}")
        console.print(f"What to do: {error.hint}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
