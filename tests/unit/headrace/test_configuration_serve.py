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
    assert serve(tmp_path, beyond + 'users = "u"\ncertificate = "c"\nkey = "k"\n').users == tmp_path / "u"
