"""A private authority: what it issues, and who may read it."""

import ssl
import stat

import pytest
from cryptography import x509

from headrace.certificates.command import Authority
from headrace.errors import NeedsOperator


def test_files_are_their_owner_s_alone_and_the_authority_stays(tmp_path):
    first = Authority(tmp_path / "new")
    made = first.client("jakarta/bank")
    again = Authority(tmp_path / "new")
    again.server("bridge", ["localhost"])

    assert made == tmp_path / "new" / "jakarta-bank.pem"
    files = sorted(tmp_path.joinpath("new").iterdir())
    assert [file.name for file in files] == [
        "authority.key",
        "authority.pem",
        "bridge.key",
        "bridge.pem",
        "jakarta-bank.key",
        "jakarta-bank.pem",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_what_is_issued_is_trusted_by_its_authority_and_usable_as_a_pair(tmp_path):
    authority = Authority(tmp_path)
    for path in (authority.client("jakarta/bank"), authority.server("bridge", ["bridge.example", "10.0.0.1"])):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_file.read_bytes()))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, path.with_suffix(".key"))


def test_a_renewed_certificate_replaces_the_former_one(tmp_path):
    authority = Authority(tmp_path)
    before = authority.client("jakarta/bank").read_bytes()
    assert authority.client("jakarta/bank").read_bytes() != before


@pytest.mark.parametrize("lost", ["authority.pem", "authority.key"])
def test_half_an_authority_is_refused(tmp_path, lost):
    Authority(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(NeedsOperator, match="only one of"):
        Authority(tmp_path)


def test_an_authority_with_another_s_key_is_refused(tmp_path):
    Authority(tmp_path / "one")
    other = Authority(tmp_path / "two")
    (tmp_path / "one" / "authority.key").write_bytes((other.folder / "authority.key").read_bytes())
    with pytest.raises(NeedsOperator, match="is not the key of"):
        Authority(tmp_path / "one")
