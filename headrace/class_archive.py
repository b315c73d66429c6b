"""An archive of the classes that a program in Java uses: a JVM maps them, and neither reads nor verifies them again (JEP 350).

Guarantees nothing but speed: a JVM that it does not fit, of another Java or with other jars, starts without it and says
nothing. `make setup` makes Spark's (infra/local/class_archives.py). Called by who starts a JVM.
"""

from pathlib import Path


def beside(jars: list[Path]) -> Path:
    """Return where the archive stands that belongs to these jars, whether there is one or not."""
    return jars[0].parent / "classes.jsa"


def options(jars: list[Path]) -> list[str]:
    """Return the JVM's options that use the archive; none while there is none."""
    archive = beside(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def making(archive: Path) -> list[str]:
    """Return the JVM's options that make an archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]
