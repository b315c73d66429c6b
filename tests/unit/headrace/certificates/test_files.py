"""What certificates in use are worth."""

import pytest

from headrace.certificates.command import Authority
from headrace.certificates.files import examine, stamp
from headrace.configuration.sections import Certificates
from headrace.errors import ConfigurationError


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def files(authority, name, **changes):
    folder = authority.folder
    known = {
        "authority": folder / "authority.pem",
        "certificate": folder / f"{name}.pem",
        "key": folder / f"{name}.key",
    }
    return Certificates(**(known | changes))


def test_good_ones_are_worth_no_word(authority):
    authority.client("edge")
    assert examine(files(authority, "edge")) == []
    assert examine(Certificates()) == []


@pytest.mark.parametrize(("days", "says"), [(13.5, "expires on"), (13.5, "in 13 days"), (-1, "expired on")])
def test_an_end_that_is_near_or_past_is_said_with_the_file(authority, days, says):
    path = authority.client("edge", days)
    (warning,) = examine(files(authority, "edge"))
    assert says in warning
    assert str(path) in warning
    assert "Renew it" in warning


def test_of_an_authority_that_is_there_twice_the_later_counts(authority, tmp_path):
    path = authority.client("old", -1)
    both = tmp_path / "both.pem"
    both.write_bytes(path.read_bytes() + authority.certificate_file.read_bytes())
    assert examine(Certificates(authority=both)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "edge.key").write_text("x"), "edge.key holds no private key"),
        (lambda folder: (folder / "edge.pem").write_text("x"), "edge.pem holds no certificate"),
        (lambda folder: (folder / "authority.pem").write_text(""), "authority.pem holds no certificate"),
        (lambda folder: (folder / "edge.key").unlink(), "edge.key cannot be read: No such file"),
        (
            lambda folder: Authority(folder).client("edge2") and (folder / "edge2.key").rename(folder / "edge.key"),
            "not the key",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_by_its_name(authority, change, says):
    authority.client("edge")
    before = stamp(files(authority, "edge"))
    change(authority.folder)
    with pytest.raises(ConfigurationError, match=says):
        examine(files(authority, "edge"))
    assert stamp(files(authority, "edge")) != before
