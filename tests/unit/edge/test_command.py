"""The edge's command line, where it needs no server."""

import pytest

from edge.command import init
from edge.snapshot.command import snapshot
from headrace.errors import ConfigurationError, CorruptInput


@pytest.mark.parametrize(
    "arguments",
    [["--adopt"], ["--position", "x"], ["--adopt", "--new-epoch", "--position", "x"], ["--new-epoch"]],
)
def test_adopt_wants_exactly_one_of_position_and_new_epoch(arguments):
    with pytest.raises(ConfigurationError, match="--adopt goes with exactly one of"):
        init.main(["--config", "none.toml", *arguments], standalone_mode=False)


def test_position_to_adopt_has_to_be_one():
    with pytest.raises(CorruptInput, match="is no position"):
        init.main(["--config", "none.toml", "--adopt", "--position", "0/1A2B3C"], standalone_mode=False)


def test_snapshot_of_an_engine_without_them_is_refused(tmp_path):
    path = tmp_path / "edge.toml"
    path.write_text(
        '[source]\nname = "jakarta/bank"\n[source.mariadb]\nhost = "h"\nuser = "u"\nserver_id = 7\n'
        '[interconnect]\nurl = "amqp://h"\n[state]\nfolder = "state"\n'
    )

    for command, arguments in ((snapshot, ["bank.t"]), (init, ["--snapshot"])):
        with pytest.raises(ConfigurationError, match="not copied yet"):
            command.main(["--config", str(path), *arguments], standalone_mode=False)
