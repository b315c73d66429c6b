"""`python -m infra.release.java_build file-log-store|s3-log-store|serve|debezium|archive ...`: what JVMs load that nobody
publishes: our classes, and archives of those that Spark and Kafka use.

Our classes, for a lake on files or on S3, for the server of SQL, or for Debezium's engine, are compiled into a jar by Eclipse's
compiler, which needs no JDK. The wheel has the jars (infra/release/dist.py); in a checkout they are next to the fetched jars. A
jar is made again when its sources change. Assumes the jars of Spark and of the object store, and fetches the compiler once.

With its archive each of Spark's JVMs starts with a third less work, and a broker with half of it. A broker is started and a small
load rehearsed (spark_jobs/jvm_warmup.py); their JVMs leave the archives when they end. Each is whole or absent. Without them
everything works, only slower, so a failure is reported and stops nothing.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headrace.errors import NeedsOperator, ReplicationError
from headrace.process import class_archive, jar_folder, jvm_options_to_archive
from headrace.terminal import Terminal
from infra.local.ivy import Group
from infra.local.jars import DEBEZIUM_POSTGRES, fetch_all, kafka, object_store, present, read_sums, spark
from infra.local.kafka import Kafka

COMPILER = Group(name="compiler", pins=("org.eclipse.jdt:ecj:3.46.100",), alone=True)
_SUMS = {"compiler/ecj-3.46.100.jar": "74c93172475fee0cd4e6eefb44233516dd40525642da35d009146d97ea598229"}
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Jar:
    """A jar, and the package of ours, as a path, that has its source or sources, and the jar itself in the wheel."""

    package: str
    name: str
    #: Its folder among the fetched jars.
    folder: str
    source: str = "*"

    @property
    def sources(self) -> list[Path]:
        """Return its sources, by name."""
        return sorted((_ROOT / self.package).glob(f"{self.source}.java"))


#: Of the log stores (spark_jobs/log_store/choice.py), and of the server of SQL (spark_jobs/serve/server.py).
FILE_LOG_STORE = Jar("spark_jobs/log_store", "headrace-file-log-store.jar", "log-store", "FileLogStore")
S3_LOG_STORE = Jar("spark_jobs/log_store", "headrace-log-store.jar", "log-store", "ConditionalLogStore")
SERVE = Jar("spark_jobs/serve", "headrace-serve.jar", "serve")
#: Of the process that runs Debezium's engine (edge/debezium/child.py).
DEBEZIUM = Jar("edge/debezium", "headrace-debezium.jar", "debezium")
JARS = {"file-log-store": FILE_LOG_STORE, "s3-log-store": S3_LOG_STORE, "serve": SERVE, "debezium": DEBEZIUM}
#: The release of Java that the classes run on, and the time of entries, so that the same sources give the same bytes.
_RELEASE, _TIME = "17", (1980, 1, 1, 0, 0, 0)


def build(jar: Jar, into: Path, console: Terminal) -> Path:
    """Make a jar in a folder, unless it is there and of the same sources; return it.

    Raises NeedsOperator if the sources do not compile.
    """
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in jar.sources)).hexdigest()
    file = into / jar.name
    if file.exists() and zipfile.ZipFile(file).comment.decode() == digest:
        return file
    fetch_all(jar_folder(), console, (COMPILER,), _SUMS)
    class_path = _class_path(jar, console)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        options = ["--release", _RELEASE, "-encoding", "UTF-8", "-g:lines", "-nowarn", "-proc:none", "-d", scratch]
        command = ["java", "-jar", str(present(COMPILER)[0]), *options, "-classpath", ":".join(map(str, class_path))]
        ended = subprocess.run([*command, *map(str, jar.sources)], check=False, capture_output=True, text=True)
        if ended.returncode:
            raise NeedsOperator(
                f"The classes of {jar.package} do not compile: {(ended.stderr or ended.stdout).strip()[-500:]}",
                hint="Correct them, or fetch the jars that they need: make object-store-jars.",
            )
        partial = Path(scratch, jar.name)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for each in sorted(Path(scratch).rglob("*.class")):
                archive.writestr(zipfile.ZipInfo(str(each.relative_to(scratch)), _TIME), each.read_bytes())
            archive.comment = digest.encode()
        partial.rename(file)
    return file


def _class_path(jar: Jar, console: Terminal) -> list[Path]:
    if jar is DEBEZIUM:
        fetch_all(jar_folder(), console, (DEBEZIUM_POSTGRES,), read_sums())
        return present(DEBEZIUM_POSTGRES)
    ours = Path(pyspark.__file__).parent / "jars"
    # Of the object store's jars some hold classes that Spark's own have too.
    theirs = ["hadoop-client-*.jar", "slf4j-api-*.jar"] if jar is S3_LOG_STORE else ["*.jar"]
    class_path = [each for pattern in theirs for each in sorted(ours.glob(pattern))] + spark()
    return class_path + (object_store() if jar is S3_LOG_STORE else [])


#: Seconds that the rehearsal may take, on a machine however busy.
_SECONDS = 600


def _is_current(archive: Path, jars: list[Path]) -> bool:
    """Whether an archive was made since its jars were, as far as they are there: a JVM uses none of others."""
    return archive.exists() and all(jar.stat().st_mtime <= archive.stat().st_mtime for jar in jars if jar.exists())


def make_class_archives(console: Terminal) -> None:
    """Make the archives, unless both are there and of these jars. Where that fails, those that were there stay."""
    archives = [class_archive(spark()), class_archive(kafka())]
    # Spark's sessions have this jar too (spark_jobs/log_store/choice.py).
    log_store = jar_folder() / FILE_LOG_STORE.folder / FILE_LOG_STORE.name
    if all(map(_is_current, archives, ([*spark(), log_store], kafka()))):
        return
    console.print("headrace: rehearsing a load, so that Spark and Kafka start with less work (once)")
    partial = [archive.with_suffix(".partial") for archive in archives]
    former = {archive: archive.with_suffix(".former") for archive in archives if archive.exists()}
    try:
        for archive, aside in former.items():
            # A JVM that uses an archive makes none.
            archive.rename(aside)
        with tempfile.TemporaryDirectory(prefix="headrace-setup-") as scratch:
            _rehearse(Path(scratch), *partial)
        for path, archive in zip(partial, archives, strict=True):
            path.rename(archive)
    except (OSError, subprocess.SubprocessError, ReplicationError) as error:
        console.print(f"headrace: an archive of classes is missing, Spark or Kafka will start more slowly: {error}")
    else:
        size = sum(archive.stat().st_size for archive in archives) // 1_000_000
        console.print(f"headrace: jars/spark, jars/kafka: archives of classes, {size} MB")
    finally:
        for archive, aside in former.items():
            if archive.exists():
                aside.unlink(missing_ok=True)
            else:
                aside.rename(archive)
        for path in partial:
            path.unlink(missing_ok=True)


def _rehearse(scratch: Path, spark_archive: Path, kafka_archive: Path) -> None:
    settings = {"auto.create.topics.enable": "true"}
    broker = Kafka(scratch / "kafka", settings=settings, options=jvm_options_to_archive(kafka_archive))
    try:
        broker.start()
        with subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.jvm_warmup", broker.bootstrap, str(scratch)],
            env=os.environ | {"SPARK_SUBMIT_OPTS": " ".join(jvm_options_to_archive(spark_archive))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as rehearsal:
            try:
                code = rehearsal.wait(_SECONDS)
            except BaseException:
                # Its JVM too.
                os.killpg(rehearsal.pid, signal.SIGKILL)
                raise
        if code:
            raise subprocess.CalledProcessError(code, rehearsal.args)
        began = time.monotonic()
        broker.stop()
        if time.monotonic() - began > broker.stop_seconds:
            # It was killed, and has left a part of the archive at most.
            raise subprocess.TimeoutExpired("kafka.Kafka", broker.stop_seconds)
    finally:
        broker.kill()


if __name__ == "__main__":
    console = Terminal(soft_wrap=True)
    try:
        for name in sys.argv[1:]:
            if name == "archive":
                make_class_archives(console)
            else:
                build(JARS[name], jar_folder() / JARS[name].folder, console)
    except ReplicationError as error:
        print(f"headrace: {error.message}\nWhat to do: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
