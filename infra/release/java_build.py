"""`python -m infra.release.java_build`: compiles our classes for Spark into one jar, by Eclipse's compiler, which needs no JDK.

The wheel has the jar (infra/release/dist.py); in a checkout it is next to the fetched jars. It is made again when its sources
change. Assumes the jars of Spark and of the object store, and fetches the compiler once.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark
from rich.console import Console

from headrace.errors import NeedsOperator, ReplicationError
from headrace.java import jar_folder
from infra.local.ivy import Group
from infra.local.jars import fetch_all, object_store, present, spark

COMPILER = Group(name="compiler", pins=("org.eclipse.jdt:ecj:3.46.100",), alone=True)
_SUMS = {"compiler/ecj-3.46.100.jar": "74c93172475fee0cd4e6eefb44233516dd40525642da35d009146d97ea598229"}
_SOURCES = Path(__file__).resolve().parents[2] / "spark_jobs" / "object_store"
#: The jar's name wherever it is (spark_jobs/object_store/log_store.py).
NAME = "headrace-log-store.jar"
#: The release of Java that the classes run on, and the time of entries, so that the same sources give the same bytes.
_RELEASE, _TIME = "17", (1980, 1, 1, 0, 0, 0)


def build(into: Path, console: Console) -> Path:
    """Make the jar in a folder, unless it is there and of the same sources; return it.

    Raises NeedsOperator if the sources do not compile.
    """
    sources = sorted(_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    jar = into / NAME
    if jar.exists() and zipfile.ZipFile(jar).comment.decode() == digest:
        return jar
    fetch_all(jar_folder(), console, (COMPILER,), _SUMS)
    hadoop = Path(pyspark.__file__).parent / "jars"
    class_path = [*hadoop.glob("hadoop-client-*.jar"), *hadoop.glob("slf4j-api-*.jar"), *spark(), *object_store()]
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        options = ["--release", _RELEASE, "-encoding", "UTF-8", "-g:lines", "-nowarn", "-proc:none", "-d", scratch]
        command = ["java", "-jar", str(present(COMPILER)[0]), *options, "-classpath", ":".join(map(str, class_path))]
        ended = subprocess.run([*command, *map(str, sources)], check=False, capture_output=True, text=True)
        if ended.returncode:
            raise NeedsOperator(
                f"The classes of {_SOURCES} do not compile: {(ended.stderr or ended.stdout).strip()[-500:]}",
                hint="Correct them, or fetch the jars that they need: make object-store-jars.",
            )
        partial = Path(scratch, NAME)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(scratch).rglob("*.class")):
                archive.writestr(zipfile.ZipInfo(str(file.relative_to(scratch)), _TIME), file.read_bytes())
            archive.comment = digest.encode()
        partial.rename(jar)
    return jar


if __name__ == "__main__":
    try:
        build(jar_folder() / "log-store", Console(highlight=False, soft_wrap=True, markup=False))
    except ReplicationError as error:
        print(f"headrace: {error.message}\nWhat to do: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
