"""`python -m infra.release.maven`: notes group and licences of each jar that `headrace jars` fetches, for the bill of materials.

The names of jars have neither. They are in the descriptions that Maven's repository has beside them, which Ivy reads when it
resolves a group: `maven.tsv` keeps them, `GROUP:NAME:VERSION` (and a classifier) with what the description states as licences.
Made again after a change of pins; assumes Java and the repository. What is for demos on one machine alone is not in it.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from headrace.errors import NeedsOperator
from headrace.terminal import Terminal
from infra.local import jars
from infra.local.ivy import resolve

_FILE = Path(__file__).with_suffix(".tsv")
#: What is shipped, as the extras of infra/release/dist.py are.
PURPOSES = {purpose: groups for purpose, groups in jars.PURPOSES.items() if purpose not in {"local", "demo"}}


class Artifact(NamedTuple):
    """A jar in Maven's repository."""

    group: str
    name: str
    version: str
    #: Empty for the version's main one.
    classifier: str = ""
    licences: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """What it is fetched as."""
        return f"{'-'.join(filter(None, (self.name, self.version, self.classifier)))}.jar"

    @property
    def purl(self) -> str:
        """Its URL as a package."""
        qualifier = f"?classifier={self.classifier}" if self.classifier else ""
        return f"pkg:maven/{self.group}/{self.name}@{self.version}{qualifier}"


class Jar(NamedTuple):
    """A jar that is fetched for some purposes, with its SHA-256 sum."""

    artifact: Artifact
    total: str
    purposes: list[str]


def read_jars() -> list[Jar]:
    """Return the jars of all purposes, each once; raise NeedsOperator for one that is not noted."""
    artifacts = map(_parse, _FILE.read_text().splitlines())
    by_file = {each.file: each for each in artifacts}
    purpose_of = {group.name: purpose for purpose, groups in PURPOSES.items() for group in groups}
    fetched: dict[str, Jar] = {}
    for path, total in sorted(jars.read_sums().items()):
        folder, file = path.split("/")
        if folder not in purpose_of:
            continue
        if file not in by_file:
            raise NeedsOperator(
                f"group and licences of jars/{path} are not known.", hint="Run 'python -m infra.release.maven'."
            )
        # The file of a version is the same one for all.
        fetched.setdefault(file, Jar(by_file[file], total, [])).purposes.append(purpose_of[folder])
    return list(fetched.values())


def _parse(line: str) -> Artifact:
    coordinates, *licences = line.split("\t")
    group, name, version, *classifier = coordinates.split(":")
    return Artifact(group, name, version, "".join(classifier), tuple(licences))


def record(console: Terminal) -> None:
    """Resolve all groups in an empty folder, and note what the descriptions of their jars state."""
    with tempfile.TemporaryDirectory(prefix="headrace-maven-") as scratch:
        cache = Path(scratch, "cache")
        for groups in PURPOSES.values():
            for group in groups:
                into = Path(scratch, group.name)
                into.mkdir()
                resolve(group, into, cache, console)
        note(cache, Path(scratch).glob("*/*.jar"))


def note(cache: Path, files: Iterable[Path]) -> None:
    """Note what Ivy's descriptions in a folder state of some jars."""
    described = {f"{each.name}-{each.version}": each for each in map(_read, cache.glob("*/*/ivy-*.xml"))}
    artifacts = set()
    for name in {file.stem for file in files}:
        main = max((each for each in described if name == each or name.startswith(f"{each}-")), key=len)
        artifacts.add(described[main]._replace(classifier=name.removeprefix(main).lstrip("-")))
    lines = ("\t".join((":".join(filter(None, each[:4])), *each.licences)) for each in sorted(artifacts))
    _FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _read(description: Path) -> Artifact:
    """Return what a description states, as Ivy keeps it."""
    info = ET.parse(description).getroot().find("info")  # noqa: S314 - of the repository that the jars are from.
    assert info is not None
    licences = dict.fromkeys(" ".join(each.get("name", "").split()) for each in info.findall("license"))
    main = Artifact(info.get("organisation", ""), info.get("module", ""), info.get("revision", ""))
    return main._replace(licences=tuple(filter(None, licences)))


if __name__ == "__main__":
    record(Terminal(soft_wrap=True))
