"""The wheel that `make dist` builds, installed into an empty environment: our packages alone, commands without a checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from edge import compiled
from headrace import __version__
from infra.local import jars
from infra.release import dist

PACKAGES = {"headrace", "edge", "bridge", "spark_jobs", "dags", "infra"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the sdist and the wheel."""
    return dist.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(made, tmp_path_factory):
    """Return the folder of programs of an environment with the wheel, which takes what it needs from ours."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(made[1])], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


@pytest.fixture
def run(installed, tmp_path):
    """Return a function that runs a program of that environment in a folder without a checkout."""

    def started(*command: str) -> str:
        environment = os.environ | {
            "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(installed / "python"),
        }
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return started


def test_only_our_packages_are_in_it_and_the_version_is_from_one_place(made):
    sdist, wheel, bill, limits = made
    assert limits.name == "constraints.txt"
    assert bill.name == f"headrace-{__version__}.cdx.json"
    # With a C compiler, which is why this checkout has the module, for this system and every Python from 3.11 on.
    is_compiled = compiled.module is not None
    tag = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_')}" if is_compiled else "py3-none-any"
    assert wheel.name == f"headrace-{__version__}-{tag}.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == PACKAGES | {f"headrace-{__version__}.dist-info"}
    kinds = {Path(name).suffix for name in names if ".dist-info" not in name}
    assert kinds - {".so"} == {
        ".py",
        ".sql",
        ".properties",
        ".java",
        ".jar",
        ".sha256",
        ".html",
        ".css",
        ".js",
        ".json",
        ".svg",
    }
    assert [name for name in names if name.endswith(".so")] == ["edge/compiled/row_json.abi3.so"] * is_compiled
    # What only tests start, and what makes a release, is not.
    assert {name.split("/")[1] for name in names if name.startswith("infra/")} == {"__init__.py", "local"}
    ours = {"headrace-log-store.jar", "headrace-file-log-store.jar"}
    assert {f"spark_jobs/log_store/{jar}" for jar in ours} | {"spark_jobs/serve/headrace-serve.jar"} <= set(names)
    with tarfile.open(sdist) as archive:
        inside = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert inside >= PACKAGES
    assert "tests" not in inside
    metadata = zipfile.ZipFile(wheel).read(f"headrace-{__version__}.dist-info/METADATA").decode()
    extras = {line.split()[1] for line in metadata.splitlines() if line.startswith("Provides-Extra")}
    assert extras >= {"edge", "bridge", "spark", "airflow", "console"}
    assert {line.split()[1] for line in (sdist.parent / "SHA256SUMS").read_text().splitlines()} == {
        file.name for file in made
    }


def test_without_a_c_compiler_the_sdist_is_installed_as_pure_python(made, tmp_path):
    # given
    environment = os.environ | {"CC": "/bin/false"}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    # when
    subprocess.run(
        [*pip, "--no-deps", "--no-index", "--target", str(tmp_path), str(made[0])], env=environment, check=True
    )
    # then
    assert not list(tmp_path.rglob("*.so"))
    command = [sys.executable, "-c", "from edge import compiled as it; print(it.module, it.__file__)"]
    shown = subprocess.check_output(command, cwd=tmp_path, env=environment | {"PYTHONPATH": str(tmp_path)}, text=True)
    assert shown.split() == ["None", str(tmp_path / "edge" / "compiled" / "__init__.py")]


@pytest.mark.long
def test_a_release_takes_the_place_of_another_one_and_of_that_for_another_system(made, tmp_path, monkeypatch):
    for file in made:
        shutil.copy(file, tmp_path)
        shutil.copy(file, tmp_path / file.name.replace(__version__, "0.1.0"))
    monkeypatch.setenv("HEADRACE_COMPILED", "0")
    sdist, wheel, *more = dist.build(tmp_path)
    assert set(tmp_path.iterdir()) == {sdist, wheel, *more, tmp_path / "SHA256SUMS"}
    assert wheel.name == f"headrace-{__version__}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        names = {name for name in archive.getnames() if "/edge/compiled/" in name}
        assert {Path(name).name for name in names} >= {
            path.name for path in Path(compiled.__file__).parent.glob("*.[ch]")
        }


def test_commands_work_without_a_checkout(run, installed):
    where = run("python", "-c", "import headrace, spark_jobs; print(headrace.__file__, spark_jobs.__file__)")
    assert all(path.startswith(str(installed.parent)) for path in where.split())
    assert __version__ in run("headrace", "--version")
    assert "jars" in run("headrace", "--help")
    for part in ("edge", "bridge", "lake", "verify", "jars", "console"):
        assert "Usage: headrace" in run("headrace", part, "--help")


@pytest.mark.long
def test_a_lake_is_loaded_by_spark_submit_and_by_the_command(run, kafka, feed, tmp_path):
    # given
    source = feed()
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(20)))
    (tmp_path / "lake.toml").write_text(
        f'[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{kafka.bootstrap}"\n'
        f'[streams.bank]\ntopic = "{source.topic}"\nsources = ["jakarta/bank"]\n'
    )
    # when
    entry = run("python", "-c", "import importlib.util as i; print(i.find_spec('spark_jobs.submit').origin)").strip()
    result = ",".join(map(str, jars.spark()))
    bronze = ["bank", "--config", "lake.toml", "--step", "bronze"]
    run("spark-submit", "--master", "local[2]", "--jars", result, entry, *bronze)
    loaded = json.loads(run("headrace", "lake", "load", "bank", "--config", "lake.toml", "--json"))
    # then
    assert loaded["bronze"]["records"] == 0
    assert loaded["silver"]["changes"] == {"public.accounts": 20}
    # and the module is the same
    assert "silver" in run("python", "-m", "spark_jobs.submit", "bank", "--config", "lake.toml")
