"""Delta's log store for several drivers on S3, compiled from ConditionalLogStore.java with the compiler that PySpark carries.

A machine needs no JDK for it. The jar is named after what it was made of, so it is made again when that changes. Assumes the
jars of Spark and of the object store; called by who fetches those.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from headrace.errors import NeedsOperator

_SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_SPARK = Path(pyspark.__file__).parent / "jars"


def make(folder: Path) -> Path:
    """Make the jar next to the other jars, if there is none of this source; return it."""
    into = folder / "log-store"
    jar = into / f"headrace-log-store-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}.jar"
    if jar.exists():
        return jar
    into.mkdir(parents=True, exist_ok=True)
    known = [*_SPARK.glob("hadoop-client-*.jar"), *_SPARK.glob("slf4j-api-*.jar")]
    known += [*folder.glob("spark/delta-storage-*.jar"), *folder.glob("object-store/*.jar")]
    compiler = [*_SPARK.glob("janino-*.jar"), *_SPARK.glob("commons-compiler-*.jar")]
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        options = ["-d", scratch, "-encoding", "UTF-8", "-g:lines", "-classpath", ":".join(map(str, known))]
        command = ["java", "-cp", ":".join(map(str, compiler)), _COMPILER, *options, str(_SOURCE)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        classes = sorted(Path(scratch).rglob("*.class"))
        if ended.returncode or not classes:
            raise NeedsOperator(
                f"The log store for S3 could not be compiled: {(ended.stderr or ended.stdout).strip()[-500:]}",
                hint="Fetch the jars of Spark first: headrace jars lake object-store.",
            )
        partial = Path(scratch, "made.jar")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in classes:
                archive.write(file, file.relative_to(scratch))
        for former in into.glob("*.jar"):
            former.unlink()
        partial.rename(jar)
    return jar
