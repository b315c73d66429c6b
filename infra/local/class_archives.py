"""The archive of the classes that Spark uses, made once by `make setup`: each of its JVMs then starts with a third less work.

A broker is started and a small load rehearsed (spark_jobs/jvm_warmup.py), whose JVM leaves the archive when it ends. It is
whole or absent. Without it everything works, only slower, so a failure is reported and stops nothing.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from headrace import process
from headrace.errors import ReplicationError
from infra.local import jars
from infra.local.kafka import Kafka

#: Seconds that the rehearsal may take, on a machine however busy.
_SECONDS = 600


def make(console: Console) -> None:
    """Make the archive if there is none."""
    archive = process.class_archive(jars.spark())
    if archive.exists():
        return
    console.print("headrace: rehearsing a load, so that Spark starts with less work (once)")
    partial = archive.with_suffix(".partial")
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-setup-") as scratch:
            _rehearse(Path(scratch), partial)
        partial.rename(archive)
    except (OSError, subprocess.SubprocessError, ReplicationError) as error:
        partial.unlink(missing_ok=True)
        console.print(f"headrace: no archive of classes, Spark will start more slowly: {error}")
    else:
        console.print(f"headrace: jars/spark: archive of classes, {archive.stat().st_size // 1_000_000} MB")


def _rehearse(scratch: Path, archive: Path) -> None:
    kafka = Kafka(scratch / "kafka", settings={"auto.create.topics.enable": "true"})
    try:
        kafka.start()
        with subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.jvm_warmup", kafka.bootstrap, str(scratch)],
            env=os.environ | {"SPARK_SUBMIT_OPTS": " ".join(process.jvm_options_to_archive(archive))},
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
    finally:
        kafka.kill()


if __name__ == "__main__":
    make(Console(highlight=False, soft_wrap=True, markup=False))
