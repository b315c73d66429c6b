"""`[serve]` of the lake's file."""

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

LAKE = '[lake]\nroot = "lake"\n[kafka]\nbootstrap = "k:9092"\n[streams.s]\nsources = ["a/b"]\n[serve]\n'


def serve(tmp_path, text):
    file = tmp_path / "lake.toml"
    file.write_text(LAKE + text)
    return load(file, LakeFile).serve


def test_without_settings_only_this_machine_is_listened_to(tmp_path):
    section = serve(tmp_path, "")
    assert (section.connect, section.thrift, section.users) == ("127.0.0.1:15002", "127.0.0.1:10000", None)


@pytest.mark.parametrize("field", ["connect", "thrift"])
def test_an_address_beyond_this_machine_needs_users_and_a_certificate(tmp_path, field):
    beyond = f'{field} = "0.0.0.0:1"\n'
    for lacking in ("", 'users = "u"\n', 'certificate = "c"\nkey = "k"\n'):
        with pytest.raises(ConfigurationError, match="goes with 'users', 'certificate' and 'key'"):
            serve(tmp_path, beyond + lacking)
    assert serve(tmp_path, beyond + 'users = "u"\ncertificate = "c"\nkey = "k"\n').users == "u"


@pytest.mark.parametrize(
    "address",
    [
        "ldaps://directory.example.com/uid={},ou=people,dc=example,dc=com",
        "ldaps://10.0.0.1:1636/{}@example.com",
        "ldap://localhost:1389/uid={},dc=example",
        "ldap://[::1]/uid={},dc=example",
        "ldaps://10.0.0.1/{}@example.com?dc=example,dc=com?(&(sAMAccountName={})(memberOf=cn=analysts,dc=example,dc=com))",
        "ldaps://10.0.0.1/uid={},dc=example?uid={},dc=example?(memberOf=cn=sales/north?,dc=example)",
    ],
)
def test_users_may_be_those_of_a_directory(tmp_path, address):
    assert serve(tmp_path, f'users = "{address}"\n').users == address


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("ldap://directory.example.com/uid={},dc=example", "readable"),
        ("ldap://localhost.example.com/uid={},dc=example", "readable"),
        ("ldaps://directory.example.com/ou=people,dc=example", "where {} is the user"),
        ("ldaps://directory.example.com/uid={},ou={}", "where {} is the user"),
        ("ldaps://directory.example.com", "where {} is the user"),
        ("ldaps:///uid={},dc=example", "where {} is the user"),
        ("ldaps://alice:secret@directory.example.com/uid={},dc=example", "where {} is the user"),
        ("ldap://localhost ldap://directory.example.com/uid={},dc=example", "where {} is the user"),
        ("https://directory.example.com/{}", "where {} is the user"),
        ("ldaps://directory.example.com/{}@example?cn=analysts,dc=example", "where {} is the user"),
        ("ldaps://directory.example.com/{}@example?cn=analysts,dc=example?", "where {} is the user"),
        ("ldaps://directory.example.com/{}@example?dc=example?(objectClass=*)(uid={})", "a parenthesis too many"),
        ("ldaps://directory.example.com/{}@example?cn=analysts,dc=example?memberUid={}", "where {} is the user"),
        ("ldaps://directory.example.com/{}@example??(uid={})", "where {} is the user"),
        # these would find the group whoever asks
        ("ldaps://directory.example.com/{}@example?cn=analysts,dc=example?(cn=analysts)", "without {} for the user"),
        ("ldaps://directory.example.com/{}@example?dc=example?(|(uid={})(cn=*)", "a parenthesis too many"),
    ],
)
def test_a_directory_that_cannot_be_is_refused(tmp_path, address, reason):
    with pytest.raises(ConfigurationError, match=reason) as caught:
        serve(tmp_path, f'users = "{address}"\n')
    assert "secret" not in str(caught.value)
