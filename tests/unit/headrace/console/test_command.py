"""What the command line of the console refuses: an address that others reach needs an identity, and a name."""

import pytest

from headrace.command import root
from headrace.errors import ConfigurationError

BRIDGE = '[kafka]\nbootstrap = "k:1"\n[interconnect]\nlisten = "127.0.0.1:0"\n[streams.bank.sources]\n"a/b" = [0]\n'


def refused(tmp_path, *options, metrics='[metrics]\nlisten = "127.0.0.1:9188"\n'):
    (tmp_path / "bridge.toml").write_text(BRIDGE + metrics)
    with pytest.raises(ConfigurationError) as error:
        root.main(["console", "--config", str(tmp_path / "bridge.toml"), *options], standalone_mode=False)
    assert error.value.exit_code == 2
    return f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "0.0.0.0:9420"], "Add --token"),
        (["--listen", "10.0.0.5:9420"], "Add --token"),
        (["--listen", "console.example:9420"], "Add --token"),
        (["--listen", "0.0.0.0:9420", "--token", "env:LONG"], "--host"),
        (["--token", "env:LONG", "--trust-header", "X-User", "--from", "10.0.0.0/8"], "not both"),
        (["--trust-header", "X-User"], "go together"),
        (["--from", "10.0.0.0/8"], "go together"),
        (["--trust-header", "X-User", "--from", "10.0.0.1/8"], "has host bits set"),
        (["--token", "env:SHORT"], "fewer than 16"),
        (["--token", "a-token-in-plain-sight"], "not the token itself"),
        (["--token", "env:NOT_SET"], "is not set"),
        (["--listen", "9420"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "expected HOST:PORT"),
        (["--at", "bridge:http"], "expected HOST:PORT"),
        (["--prometheus", "file:///etc/passwd"], "expected a URL"),
        (["--certificate", "a.pem"], "go together"),
    ],
)
def test_what_would_serve_strangers_or_cannot_work_is_refused(tmp_path, monkeypatch, options, why):
    monkeypatch.setenv("LONG", "x" * 32)
    monkeypatch.setenv("SHORT", "x" * 8)
    assert why in refused(tmp_path, *options)


def test_a_bridge_without_an_endpoint_is_refused_with_what_to_add(tmp_path):
    text = refused(tmp_path, metrics="")
    assert "[metrics] listen" in text
    assert "--at" in text


def test_the_token_is_in_no_message(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORT", "secret")
    assert "secret" not in refused(tmp_path, "--token", "env:SHORT")
    assert "in-plain-sight" not in refused(tmp_path, "--token", "a-token-in-plain-sight")
