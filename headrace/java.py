"""Where Spark's and Kafka's jars are, and the archive of classes with which a JVM starts sooner.

Jars are in `HEADRACE_JARS`, in the set-up of a checkout, or in the user's own data folder. The DAG file has the same list and
imports nothing of ours. A JVM maps the classes in an archive, and neither reads nor verifies them again (JEP 350). Where the
archive does not fit, because Java or the jars are others, the JVM starts without it. `make setup` makes Spark's
(infra/local/class_archives.py). Called when a JVM is started and when jars are fetched.
"""

import os
from pathlib import Path


def jar_folder() -> Path:
    """Return the folder that holds, or will hold, a folder of jars for each purpose."""
    if folder := os.environ.get("HEADRACE_JARS"):
        return Path(folder).absolute()
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".setup" / "jars"
    # An installed package: `headrace jars` fetches them.
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "headrace" / "jars"


def class_archive(jars: list[Path]) -> Path:
    """Return where the archive of these jars is, whether there is one or not."""
    return jars[0].parent / "classes.jsa"


def options(jars: list[Path]) -> list[str]:
    """Return the JVM's options that use the archive; none while there is none."""
    archive = class_archive(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def options_to_make(archive: Path) -> list[str]:
    """Return the JVM's options that make an archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]
