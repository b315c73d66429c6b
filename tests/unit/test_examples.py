"""The examples' pages name files that are there."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("page", sorted(EXAMPLES.glob("*/README.md")), ids=lambda page: page.parent.name)
def test_a_file_that_a_page_names_is_there(page):
    """O14."""
    named = set(re.findall(r"[\w/-]+\.(?:sql|py)\b", page.read_text()))

    assert named
    assert {name for name in named if not (page.parent / name).exists()} == set()
