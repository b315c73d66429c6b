"""When certificates end, as a metric: it follows renewed files, and unreadable ones give none (O6)."""

import datetime as dt
import os

import pytest

from edge.observability.figures import Figures
from headrace.certificates.command import Authority
from headrace.certificates.files import Expiry
from headrace.configuration.sections import Certificates

DAY = 86_400


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def days(expiry):
    return (expiry.time() - dt.datetime.now(dt.UTC).timestamp()) / DAY


def test_the_first_of_authority_and_certificate_counts_and_a_renewed_file_is_read_again(authority, tmp_path):
    own = authority.client("jakarta/bank", days=3)
    expiry = Expiry(Certificates(authority=tmp_path / "authority.pem", certificate=own, key=own.with_suffix(".key")))
    assert days(expiry) == pytest.approx(3, abs=0.1)
    authority.client("jakarta/bank", days=30)
    os.utime(own, ns=(1, 1))
    assert days(expiry) == pytest.approx(30, abs=0.1)
    own.write_text("no certificate")
    assert expiry.time() is None
    assert Expiry(Certificates()).time() is None


def test_an_edge_reports_its_certificates_and_its_disk_to_headquarters(authority, tmp_path):
    own = authority.client("jakarta/bank", days=3)
    figures = Figures(
        certificates=Expiry(Certificates(certificate=own, key=own.with_suffix(".key"))), state_folder=tmp_path
    )
    sent = figures.for_batch()
    assert sent["certificate_expiry_time"] == figures.certificate_expiry
    assert sent["state_disk_free_bytes"] > 0
    figures.state_folder = tmp_path / "not there"
    assert "state_disk_free_bytes" not in figures.for_batch()
