"""`python -m infra.release.dist FOLDER`: what is released: sdist, wheel, bill of materials (CycloneDX 1.5), checksums.

Sdist and wheel are built from a clean copy of what is tracked. Only packages of ours are in them: no tests, no files of images
and routers. The wheel is built from the sdist, so the two agree. The log stores, the server of SQL and the process for
Debezium's engine are compiled into both. The wheel is for this system alone where there is a C compiler (setup.py). Assumes
setuptools and the jars of the object store; called by `make dist`.

The bill has the packages that each extra brings, and the jars that `headrace jars` fetches. Guarantees that every Python package
in it is one that requirements.txt pins, with the version and the SHA-256 sums there, and that the same tree gives the same bytes:
no time, no random number. Packages for development alone are not in it. Which package needs which is read from what is installed,
in an environment with all extras (`make setup`).

`python -m infra.release.dist --licences`, after a change of pins: notes group and licences of each jar in `maven.tsv`. The names
of jars have neither. They are in the descriptions that Maven's repository has beside them, which Ivy reads when it resolves a
group. Assumes Java and the repository. What is for demos on one machine alone is not in it.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace import __version__
from headrace.errors import NeedsOperator
from headrace.terminal import Terminal
from infra.local import jars
from infra.local.ivy import resolve
from infra.release import java_build

#: What a user installs; `dev` is not shipped, `local` is for demos on one machine.
EXTRAS = ("edge", "bridge", "spark", "airflow", "console", "reader", "lineage")
_PINS = Path(__file__).resolve().parents[2] / "requirements.txt"
_PIN = re.compile(r"^([\w.-]+)==(\S+)( ;[^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
#: Group, name, version and licences of each jar (`--licences`), and what of them is shipped, as the extras are.
_MAVEN = Path(__file__).with_name("maven.tsv")
_PURPOSES = {purpose: groups for purpose, groups in jars.PURPOSES.items() if purpose not in {"local", "demo"}}


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


def _read_jars() -> list[Jar]:
    """Return the jars of all purposes, each once; raise NeedsOperator for one that is not noted."""
    artifacts = map(_parse_artifact, _MAVEN.read_text().splitlines())
    by_file = {each.file: each for each in artifacts}
    purpose_of = {group.name: purpose for purpose, groups in _PURPOSES.items() for group in groups}
    fetched: dict[str, Jar] = {}
    for path, total in sorted(jars.read_sums().items()):
        folder, file = path.split("/")
        if folder not in purpose_of:
            continue
        if file not in by_file:
            raise NeedsOperator(
                f"group and licences of jars/{path} are not known.",
                hint="Run 'python -m infra.release.dist --licences'.",
            )
        # The file of a version is the same one for all.
        fetched.setdefault(file, Jar(by_file[file], total, [])).purposes.append(purpose_of[folder])
    return list(fetched.values())


def _parse_artifact(line: str) -> Artifact:
    coordinates, *licences = line.split("\t")
    group, name, version, *classifier = coordinates.split(":")
    return Artifact(group, name, version, "".join(classifier), tuple(licences))


def record_licences(console: Terminal) -> None:
    """Resolve all groups in an empty folder, and note what the descriptions of their jars state."""
    with tempfile.TemporaryDirectory(prefix="headrace-maven-") as scratch:
        cache = Path(scratch, "cache")
        for groups in _PURPOSES.values():
            for group in groups:
                into = Path(scratch, group.name)
                into.mkdir()
                resolve(group, into, cache, console)
        _note(cache, Path(scratch).glob("*/*.jar"))


def _note(cache: Path, files: Iterable[Path]) -> None:
    """Note what Ivy's descriptions in a folder state of some jars."""
    described = {f"{each.name}-{each.version}": each for each in map(_read_description, cache.glob("*/*/ivy-*.xml"))}
    artifacts = set()
    for name in {file.stem for file in files}:
        main = max((each for each in described if name == each or name.startswith(f"{each}-")), key=len)
        artifacts.add(described[main]._replace(classifier=name.removeprefix(main).lstrip("-")))
    lines = ("\t".join((":".join(filter(None, each[:4])), *each.licences)) for each in sorted(artifacts))
    _MAVEN.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _read_description(description: Path) -> Artifact:
    """Return what a description states, as Ivy keeps it."""
    info = ET.parse(description).getroot().find("info")  # noqa: S314 - of the repository that the jars are from.
    assert info is not None
    licences = dict.fromkeys(" ".join(each.get("name", "").split()) for each in info.findall("license"))
    main = Artifact(info.get("organisation", ""), info.get("module", ""), info.get("revision", ""))
    return main._replace(licences=tuple(filter(None, licences)))


def bill_of_materials() -> dict[str, Any]:
    """Return the bill; raise NeedsOperator for a package that is not installed, or not pinned."""
    pins = {name: (version, hashes) for name, version, _, hashes in _read_pins()}
    needs: dict[str, set[str]] = {}
    extras = {extra: _follow(extra, needs) for extra in EXTRAS}
    if missing := sorted(needs.keys() - pins.keys()):
        raise NeedsOperator(f"requirements.txt does not pin {', '.join(missing)}.", hint="Run make pins.")
    library = {name: f"pkg:pypi/{name}@{pins[name][0]}" for name in sorted(needs)}
    components = [
        _component(name, *pins[name], [extra for extra in EXTRAS if name in extras[extra]]) for name in library
    ]
    maven = [_jar(each) for each in _read_jars()]
    root = f"pkg:pypi/headrace@{__version__}"
    direct = {name for extra in EXTRAS for name in _requirements("headrace", (extra,))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "headrace",
                "version": __version__,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [*components, *maven],
        "dependencies": [
            {"ref": root, "dependsOn": [*sorted(library[name] for name in direct), *(jar["bom-ref"] for jar in maven)]},
            *({"ref": library[name], "dependsOn": sorted(library[each] for each in needs[name])} for name in library),
            *({"ref": jar["bom-ref"], "dependsOn": []} for jar in maven),
        ],
    }


def write_bill(path: Path) -> Path:
    """Write the bill into a file, and return the file."""
    path.write_text(json.dumps(bill_of_materials(), indent=1) + "\n")
    return path


def constraints() -> str:
    """Return the versions in the bill as pip's constraints: an installation has these, whatever is newer by then.

    Pins of other platforms' packages are among them, which constrain nothing here.
    """
    return "".join(f"{name}=={version}{marker}\n" for name, version, marker, _ in _read_pins())


def _read_pins() -> list[tuple[str, str, str, str]]:
    """Return name, version, marker, and hashes of each package in requirements.txt."""
    pins = _PIN.findall(_PINS.read_text())
    return [(canonicalize_name(name), version, marker, hashes) for name, version, marker, hashes in pins]


def _follow(extra: str, needs: dict[str, set[str]]) -> set[str]:
    """Return all packages that an extra brings, and note in `needs` what each of them needs."""
    packages: set[str] = set()
    waiting = set(_requirements("headrace", (extra,)).items())
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        done.add((name, extras))
        packages.add(name)
        below = _requirements(name, extras)
        needs.setdefault(name, set()).update(below)
        waiting |= set(below.items()) - done
    return packages


def _requirements(package: str, extras: tuple[str, ...] | frozenset[str]) -> dict[str, frozenset[str]]:
    """Return what a package with some extras needs on this platform: names, each with the extras that are wanted of it."""
    environment = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
    needs: dict[str, frozenset[str]] = {}
    for need in _read_requirements(package):
        if need.marker is None or any(need.marker.evaluate(each) for each in environment):
            name = canonicalize_name(need.name)
            needs[name] = needs.get(name, frozenset()) | need.extras
    return needs


def _read_requirements(package: str) -> Iterator[Requirement]:
    return map(Requirement, requires(package) or ())


def _component(name: str, version: str, hashes: str, extras: list[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": _licences(name),
        # A package has a file for each platform; which one is installed is not known here.
        "externalReferences": [
            {"type": "distribution", "url": purl, "hashes": [{"alg": "SHA-256", "content": each}]}
            for each in re.findall(r"sha256:(\w+)", hashes)
        ],
        "properties": [{"name": "headrace:extra", "value": extra} for extra in extras],
    }


def _licences(package: str) -> list[dict[str, Any]]:
    """Return the licences that a package itself states, as CycloneDX has them; empty where it states none."""
    about = metadata(package)
    if "License-Expression" in about:
        return [{"expression": about["License-Expression"]}]
    classified = [
        each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License :: ")
    ]
    # Some have the whole text of their licence in that field.
    own = about["License"].splitlines()[:1] if "License" in about else []
    return [{"license": {"name": name}} for name in classified or own]


def _jar(jar: Jar) -> dict[str, Any]:
    """Return the component of a jar."""
    artifact = jar.artifact
    return {
        "type": "library",
        "bom-ref": artifact.purl,
        "group": artifact.group,
        "name": artifact.name,
        "version": artifact.version,
        "purl": artifact.purl,
        "licenses": [{"license": {"name": name}} for name in artifact.licences],
        "hashes": [{"alg": "SHA-256", "content": jar.total}],
        "properties": [{"name": "headrace:jars", "value": purpose} for purpose in jar.purposes],
    }


_BUILD = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
_ROOT = Path(__file__).resolve().parents[2]
#: What is put into the sdist in addition to the packages.
_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
_PACKAGES = ("headrace", "edge", "bridge", "spark_jobs", "dags", "infra")


def build(into: Path) -> list[Path]:
    """Put sdist, wheel, bill of materials (CycloneDX), its constraints and SHA256SUMS into a folder; return all but the last."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as scratch:
        tree, source = Path(scratch, "tree"), Path(scratch, "source")
        _copy_tracked(tree)
        for jar in java_build.JARS.values():
            file = java_build.build(jar, Path(scratch, "java"), Terminal(stderr=True))
            shutil.copy(file, tree / jar.package)
        sdist = _build("sdist", tree, into)
        with tarfile.open(sdist) as archive:
            # Python 3.11.0 to 3.11.3 have no filters; the archive was made here.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(source)  # noqa: S202
        (unpacked,) = source.iterdir()
        wheel = _build("wheel", unpacked, into)
    limits = (into / "constraints.txt").absolute()
    limits.write_text(constraints())
    files = [sdist, wheel, write_bill(into / f"headrace-{__version__}.cdx.json").absolute(), limits]
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (into / "SHA256SUMS").write_text("".join(sums))
    # Those of another release, and the wheel of another system, have other names, and would stay beside these.
    for former in {file.absolute() for file in into.glob("headrace-*")} - set(files):
        former.unlink()
    return files


def _copy_tracked(tree: Path) -> None:
    tree.mkdir()
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *_FILES, *_PACKAGES]
    for name in subprocess.check_output(listed, cwd=_ROOT, text=True).splitlines():
        if (_ROOT / name).is_file():
            copy = tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((_ROOT / name).read_bytes())


def _build(kind: str, source: Path, into: Path) -> Path:
    """Build one of them in a process of its own, since setuptools works in the current folder."""
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as scratch:
        subprocess.run([sys.executable, "-c", _BUILD, kind, scratch], cwd=source, check=True, stdout=subprocess.DEVNULL)
        (file,) = Path(scratch).iterdir()
        return Path(shutil.copy(file, into)).absolute()


if __name__ == "__main__":
    if sys.argv[1] == "--licences":
        record_licences(Terminal(soft_wrap=True))
    else:
        for path in build(Path(sys.argv[1])):
            print(path)
