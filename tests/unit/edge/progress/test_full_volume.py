"""A volume that the spool fills: what is accepted leaves it, and the checkpoint moves."""

import json
import subprocess
import sys

import pytest

from edge.agent import Agent
from edge.progress.spool import spool_limit
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

_MOUNTED = 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"'


def in_small_volume(folder, *command):
    """Run a command in a user namespace in which a folder is a file system of 3 MB of its own."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNTED, folder, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_spool_that_fills_its_volume_is_emptied_when_the_path_is_back_after_a_restart_too(tmp_path):
    """G3: the checkpoint did not fit any more, so that no row was ever deleted."""
    if in_small_volume(tmp_path, "true").returncode != 0:
        pytest.skip("this machine lets no user namespace mount a file system")
    done = in_small_volume(tmp_path, sys.executable, "-m", "tests.unit.edge.progress.full_volume", tmp_path)

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kept"] > 10
    assert (result["left"], result["waiting"]) == (0, 0)
    assert result["acknowledged"] == result["spooled"]


def test_a_limit_above_the_size_of_the_volume_is_refused(tmp_path):
    """G3: such a limit never comes into effect, the volume does."""
    path = tmp_path / "edge.toml"
    path.write_text(
        f"""
        source = {{ name = "a/b", postgresql = {{ host = "h", database = "d", user = "u" }} }}
        interconnect = {{ url = "amqp://127.0.0.1:1" }}
        state = {{ folder = "{tmp_path}" }}
        spool = {{ megabytes = {spool_limit(tmp_path) + 1} }}
        """
    )
    agent = Agent(load(path, EdgeFile))
    with pytest.raises(ConfigurationError, match="more than the volume") as raised:
        agent._spooler(None, None)
    assert f"at most {spool_limit(tmp_path)}" in raised.value.hint
