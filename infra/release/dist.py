"""`python -m infra.release.dist FOLDER`: what is released: sdist, wheel, bill of materials, checksums.

Sdist and wheel are built from a clean copy of what is tracked. Only packages of ours are in them: no tests, no files of images
and routers. The wheel is built from the sdist, so the two agree.
The log store for S3, the server of SQL and the process for Debezium's engine are compiled into both. The wheel is for this system
alone where there is a C compiler (setup.py). Assumes setuptools and the jars of the object store; called by `make dist`.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from rich.console import Console

from headrace import __version__
from infra.release import java_build, sbom

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
        for jar in (java_build.LOG_STORE, java_build.SERVE, java_build.DEBEZIUM):
            file = java_build.build(jar, Path(scratch, "java"), Console(stderr=True))
            shutil.copy(file, tree / jar.package)
        sdist = _built("sdist", tree, into)
        with tarfile.open(sdist) as archive:
            # Python 3.11.0 to 3.11.3 have no filters; the archive was made here.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(source)  # noqa: S202
        (unpacked,) = source.iterdir()
        wheel = _built("wheel", unpacked, into)
    limits = (into / "constraints.txt").absolute()
    limits.write_text(sbom.constraints())
    made = [sdist, wheel, sbom.write(into / f"headrace-{__version__}.cdx.json").absolute(), limits]
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in made)
    (into / "SHA256SUMS").write_text("".join(sums))
    # Those of another release, and the wheel of another system, have other names, and would stay beside these.
    for former in {file.absolute() for file in into.glob("headrace-*")} - set(made):
        former.unlink()
    return made


def _copy_tracked(tree: Path) -> None:
    tree.mkdir()
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *_FILES, *_PACKAGES]
    for name in subprocess.check_output(listed, cwd=_ROOT, text=True).splitlines():
        if (_ROOT / name).is_file():
            copy = tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((_ROOT / name).read_bytes())


def _built(kind: str, source: Path, into: Path) -> Path:
    """Build one of them in a process of its own, since setuptools works in the current folder."""
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as scratch:
        subprocess.run([sys.executable, "-c", _BUILD, kind, scratch], cwd=source, check=True, stdout=subprocess.DEVNULL)
        (made,) = Path(scratch).iterdir()
        return Path(shutil.copy(made, into)).absolute()


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(path)
