"""The edge's command line, where it needs no server."""

import pytest

from edge.command import init
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
