"""The software bill of materials of a release, CycloneDX 1.5: the packages that each extra brings, and the jars for Spark.

Guarantees that every Python package in it is one that requirements.txt pins, with the version and the SHA-256 sums there, and
that the same tree gives the same bytes: no time, no random number. Packages for development alone are not in it. Which package
needs which is read from what is installed; called by infra/dist.py in an environment with all extras (`make setup`).
"""

import json
import re
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace import __version__
from headrace.errors import NeedsOperator
from infra.local import jars

#: What a user installs; `dev` is not shipped, `local` is for demos on one machine.
EXTRAS = ("edge", "bridge", "spark", "airflow", "console", "reader")
_PINS = Path(__file__).resolve().parents[1] / "requirements.txt"
_PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ;[^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def document() -> dict[str, Any]:
    """Return the bill; raise NeedsOperator for a package that is not installed, or not pinned."""
    pins: dict[str, tuple[str, str]] = {
        canonicalize_name(name): (version, hashes) for name, version, hashes in _PIN.findall(_PINS.read_text())
    }
    needs: dict[str, set[str]] = {}
    extras = {extra: _follow(extra, needs) for extra in EXTRAS}
    if missing := sorted(needs.keys() - pins.keys()):
        raise NeedsOperator(f"requirements.txt does not pin {', '.join(missing)}.", hint="Run make pins.")
    library = {name: f"pkg:pypi/{name}@{pins[name][0]}" for name in sorted(needs)}
    components = [
        _component(name, *pins[name], [extra for extra in EXTRAS if name in extras[extra]]) for name in library
    ]
    maven = [_jar(pin) for pin in (*jars.SPARK.pins, *jars.SPARK.overrides)]
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


def write(path: Path) -> Path:
    """Write the bill into a file, and return the file."""
    path.write_text(json.dumps(document(), indent=1) + "\n")
    return path


def _follow(extra: str, needs: dict[str, set[str]]) -> set[str]:
    """Return all packages that an extra brings, and note in `needs` what each of them needs."""
    found: set[str] = set()
    waiting = set(_requirements("headrace", (extra,)).items())
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        done.add((name, extras))
        found.add(name)
        below = _requirements(name, extras)
        needs.setdefault(name, set()).update(below)
        waiting |= set(below.items()) - done
    return found


def _requirements(package: str, extras: tuple[str, ...] | frozenset[str]) -> dict[str, frozenset[str]]:
    """Return what a package with some extras needs on this platform: names, each with the extras that are wanted of it."""
    environment = [{**default_environment(), "extra": extra} for extra in ("", *extras)]
    found: dict[str, frozenset[str]] = {}
    for need in _declared(package):
        if need.marker is None or any(need.marker.evaluate(each) for each in environment):
            name = canonicalize_name(need.name)
            found[name] = found.get(name, frozenset()) | need.extras
    return found


def _declared(package: str) -> Iterator[Requirement]:
    return map(Requirement, requires(package) or ())


def _component(name: str, version: str, hashes: str, extras: list[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        # A package has a file for each platform; which one is installed is not known here.
        "properties": [
            *({"name": "headrace:extra", "value": extra} for extra in extras),
            *({"name": "headrace:sha256", "value": each} for each in re.findall(r"sha256:(\w+)", hashes)),
        ],
    }


def _jar(pin: str) -> dict[str, Any]:
    group, name, version = pin.split(":")
    purl = f"pkg:maven/{group}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "group": group,
        "name": name,
        "version": version,
        "purl": purl,
        "properties": [{"name": "headrace:extra", "value": "spark"}],
    }
