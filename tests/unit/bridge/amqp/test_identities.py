"""For which sources who may send."""

import pytest

from bridge.amqp.authorization import Identities

RULES = {"edge-3": ["jakarta/bank", "london/*"], "retired/bank": ["jakarta/other"]}


@pytest.mark.parametrize(
    ("identity", "source", "may"),
    [
        ("jakarta/bank", "jakarta/bank", True),
        ("jakarta/bank", "jakarta/bank2", False),
        ("jakarta/ban", "jakarta/bank", False),
        ("edge-3", "jakarta/bank", True),
        ("edge-3", "london/anything", True),
        ("edge-3", "londonderry/anything", False),
        ("edge-3", "edge-3", False),
        ("jakarta/*", "jakarta/bank", True),
        # What is said of a name in the file replaces what the name itself says.
        ("retired/bank", "retired/bank", False),
        ("retired/bank", "jakarta/other", True),
        ("", "jakarta/bank", False),
        (None, "jakarta/bank", False),
    ],
)
def test_a_name_opens_what_the_file_says_or_else_its_own_source(identity, source, may):
    assert Identities(RULES, demanded=True).may_send(identity, source) is may


def test_without_certificates_everybody_may_send():
    assert Identities({}, demanded=False).may_send(None, "jakarta/bank")
