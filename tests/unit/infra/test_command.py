"""The commands' words and exit codes where no server is needed."""

import json

import pytest
from click.testing import CliRunner

from headrace.errors import ConfigurationError, NeedsOperator
from infra.local.stack import down, status, up


def test_down_where_nothing_runs_says_so_and_succeeds(tmp_path):
    done = CliRunner().invoke(down, ["--folder", str(tmp_path)])

    assert done.exit_code == 0
    assert "Nothing is running" in done.output


def test_status_where_nothing_runs_fails(tmp_path):
    done = CliRunner().invoke(status, ["--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "headrace up" in done.output

    done = CliRunner().invoke(status, ["--folder", str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.output) == {"folder": str(tmp_path), "running": False, "servers": {}}


@pytest.mark.parametrize("name", ["", "a b", "../a", "kafka"])
def test_name_that_cannot_be_a_server_is_refused(tmp_path, name):
    for kind in ("--postgres", "--mariadb"):
        with pytest.raises(ConfigurationError, match="cannot be a server's name"):
            CliRunner().invoke(up, ["--folder", str(tmp_path), kind, name], catch_exceptions=False)


def test_two_servers_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="'one' cannot name two servers"):
        CliRunner().invoke(
            up, ["--folder", str(tmp_path), "--postgres", "one", "--mariadb", "one"], catch_exceptions=False
        )


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99}'])
def test_damaged_stack_file_is_named_and_left_alone(tmp_path, content):
    (tmp_path / "stack.json").write_text(content)

    for command in (up, down, status):
        with pytest.raises(NeedsOperator, match=r"stack\.json"):
            CliRunner().invoke(command, ["--folder", str(tmp_path)], catch_exceptions=False)

    assert (tmp_path / "stack.json").read_text() == content
