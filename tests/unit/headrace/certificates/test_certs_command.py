"""`headrace certs`, as somebody tries it."""

import os

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


def test_o1_each_service_gets_its_own_key_and_no_authoritys(tmp_path):
    folder, edge, router = (tmp_path / name for name in ("certs", "edge", "router"))
    made = ["--source", "jakarta/bank", "--server", "interior-a=a.example", "--interior-router", "interior-a=a.example"]
    copies = ["--copy", f"jakarta-bank={edge}:{os.getuid()}", "--copy", f"interior-a={router}"]
    # Again with the same words: a renewal, in folders that are there.
    for _ in range(2):
        done = CliRunner().invoke(certs, [str(folder), *made, *copies], catch_exceptions=False)
        assert done.exit_code == 0
    names = {str(path.relative_to(tmp_path)) for each in (edge, router) for path in each.rglob("*.*")}
    of_router = {"authority.pem", "interior-a.pem", "interior-a.key"}
    assert names == {"edge/authority.pem", "edge/jakarta-bank.pem", "edge/jakarta-bank.key"} | {
        f"router/{below}{name}" for below in ("", "routers/") for name in of_router
    }
    assert {path.stat().st_mode & 0o777 for each in (edge, router) for path in each.rglob("*.*")} == {0o600}
    assert (router / "routers").stat().st_mode & 0o777 == 0o700
    assert (edge / "jakarta-bank.key").read_bytes() == (folder / "jakarta-bank.key").read_bytes()


def test_a_copy_of_a_certificate_that_is_not_there_names_those_that_are(tmp_path):
    arguments = [str(tmp_path / "certs"), "--client", "lake", "--copy", f"jakarta-bank={tmp_path / 'edge'}"]
    with pytest.raises(ConfigurationError, match=r"no certificate jakarta-bank\.pem") as raised:
        CliRunner().invoke(certs, arguments, catch_exceptions=False)
    assert "lake" in raised.value.hint


@pytest.mark.parametrize(
    "arguments",
    [
        ["--copy", "lake"],
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
