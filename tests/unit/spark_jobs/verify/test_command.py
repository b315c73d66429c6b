"""What `headrace verify` refuses before any server is asked."""

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from spark_jobs.verify.command import verify

FILE = """
[lake]
root = "lake"
[kafka]
bootstrap = "127.0.0.1:1"
[streams.bank]
sources = ["jakarta/bank", "london/bank"]
[streams.sales]
sources = ["jakarta/sales"]
[sources."jakarta/bank".postgresql]
host = "127.0.0.1"
port = 1
database = "bank"
user = "auditor"
password = "env:HEADRACE_TEST_NOT_SET"
"""


@pytest.fixture
def refuse(tmp_path):
    """Return a function that runs the command and returns the error that it ends with."""
    path = tmp_path / "lake.toml"
    path.write_text(FILE)

    def run(*arguments: str) -> ConfigurationError:
        with pytest.raises(ConfigurationError) as raised:
            verify.main(["--config", str(path), *arguments], standalone_mode=False)
        return raised.value

    return run


def test_a_stream_that_the_file_does_not_have(refuse):
    error = refuse("nothing")

    assert "no stream 'nothing'" in error.message
    assert "bank, sales" in error.hint


def test_a_source_that_is_in_no_stream(refuse):
    error = refuse("--source", "paris/bank")

    assert "no source 'paris/bank' in any stream" in error.message
    assert "jakarta/bank, jakarta/sales, london/bank" in error.hint


def test_a_source_of_another_stream(refuse):
    error = refuse("sales", "--source", "jakarta/bank")

    assert "no source 'jakarta/bank' in stream 'sales'" in error.message


def test_a_direct_connection_that_the_file_does_not_have(refuse, tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text(FILE + '[sources."london/bank"]\nvia = "direct"\n')
    error = refuse("bank")

    assert "give exactly one of 'postgresql', 'mariadb' and 'mysql'" in error.message


def test_a_source_is_asked_at_its_edge_unless_a_connection_is_given(tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text(
        FILE.replace('password = "env:HEADRACE_TEST_NOT_SET"', "")
        + '[sources."jakarta/sales"]\nvia = "interconnect"\nmysql = { host = "h", user = "u" }\n'
    )
    sources = load(path, LakeFile).sources

    assert {name: each.is_direct for name, each in sources.items()} == {"jakarta/bank": True, "jakarta/sales": False}


def test_a_password_that_is_not_there(refuse):
    error = refuse("--source", "jakarta/bank")

    assert "HEADRACE_TEST_NOT_SET is not set" in error.message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        verify.main(["--config", str(tmp_path / "absent.toml")], standalone_mode=False)


def test_a_source_by_hand_is_connected_to_by_nobody(refuse, tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text(FILE + '[sources."jakarta/sales"]\nvia = "oracle"\n')
    (_, sales) = load(path, LakeFile).sources.values()
    assert (sales.by_hand, sales.is_direct) == ("oracle", False)
    path.write_text(FILE + '[sources."london/bank"]\nvia = "db2"\nmysql = { host = "h", user = "u" }\n')
    assert "'via' is 'db2', so give none" in refuse("bank").message
