"""`headrace certs`, as somebody tries it."""

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.exceptions import InvalidSignature

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


def test_r3_links_between_interior_routers_have_an_authority_of_their_own(tmp_path):
    folder = tmp_path / "certs"
    arguments = [str(folder), "--source", "jakarta/bank", "--interior-router", "interior-a=interior-a.example"]
    done = CliRunner().invoke(certs, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert {path.name for path in (folder / "routers").glob("*.pem")} == {"authority.pem", "interior-a.pem"}
    authority, between = (
        x509.load_pem_x509_certificate((each / "authority.pem").read_bytes()) for each in (folder, folder / "routers")
    )
    router = x509.load_pem_x509_certificate((folder / "routers" / "interior-a.pem").read_bytes())
    router.verify_directly_issued_by(between)
    edge = x509.load_pem_x509_certificate((folder / "jakarta-bank.pem").read_bytes())
    edge.verify_directly_issued_by(authority)
    # Both authorities have one subject: it is the signature that keeps an edge from being an interior router.
    with pytest.raises(InvalidSignature):
        edge.verify_directly_issued_by(between)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--source", "Jakarta"],
        ["--server", "bridge"],
        ["--server", "a/b=host"],
        ["--client", "../lake"],
        ["--interior-router", "a"],
    ],
)
def test_a_name_that_is_none_is_refused_before_anything_is_made(tmp_path, arguments):
    with pytest.raises(ConfigurationError):
        CliRunner().invoke(certs, [str(tmp_path / "certs"), *arguments], catch_exceptions=False)
    assert not (tmp_path / "certs").exists()
