"""The previous release as its users have it: a wheel of its commit, installed in an environment of its own.

`make` builds it once, from this repository's history. What it depends on are the packages of this release's environment: the two
releases pin the same.
"""

import subprocess
import sys
import sysconfig
import tarfile
from io import BytesIO
from pathlib import Path

VERSION, COMMIT = "0.1.0", "2540f17f55e9476a195baf05e405fd355482219d"
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".setup" / "upgrade" / VERSION
#: The previous release's command.
HEADRACE = FOLDER / "bin" / "headrace"


def make(folder: Path = FOLDER) -> None:
    """Build the previous release's wheel and install it into an environment of its own."""
    source = folder.with_name(f"{folder.name}-source")
    archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        # Python 3.11.0 to 3.11.3 have no filters; the archive was made here.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *build, "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("headrace-*.whl")
    python = folder / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Read after the environment's own packages, so that the previous release's are found first.
    (packages / "dependencies.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    stdout = subprocess.run([HEADRACE, "--version"], check=True, capture_output=True, text=True).stdout
    assert VERSION in stdout, f"{HEADRACE} is release {stdout.strip()}, not {VERSION}"


if __name__ == "__main__":
    make()
