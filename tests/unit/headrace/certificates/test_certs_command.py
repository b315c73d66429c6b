"""`headrace certs`, as somebody tries it."""

import pytest
from click.testing import CliRunner

from headrace.certificates.command import certs
from headrace.errors import ConfigurationError


def test_one_command_makes_what_a_trial_needs(tmp_path):
    arguments = [str(tmp_path / "certs"), "--source", "jakarta/bank", "--server", "bridge=bridge.example,localhost"]
    done = CliRunner().invoke(certs, [*arguments, "--client", "lake"], catch_exceptions=False)
    assert done.exit_code == 0
    assert {path.name for path in (tmp_path / "certs").glob("*.pem")} == {
        "authority.pem",
        "bridge.pem",
        "jakarta-bank.pem",
        "lake.pem",
    }
    assert f"certificate  {tmp_path}/certs/jakarta-bank.pem, key jakarta-bank.key, 90 days" in done.output


@pytest.mark.parametrize(
    "arguments", [["--source", "Jakarta"], ["--server", "bridge"], ["--server", "a/b=host"], ["--client", "../lake"]]
)
def test_a_name_that_is_none_is_refused_before_anything_is_made(tmp_path, arguments):
    with pytest.raises(ConfigurationError):
        CliRunner().invoke(certs, [str(tmp_path / "certs"), *arguments], catch_exceptions=False)
    assert not (tmp_path / "certs").exists()
