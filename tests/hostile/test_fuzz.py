"""What the fuzzer kept is taken well by now; and each target is fed for some seconds, with another seed each time."""

import logging
import random

import pytest

from tests.hostile.fuzz import TARGETS, corpus, run

#: For each target; a minute in all.
SECONDS = 4.0
KEPT = [(target, name, data) for target in TARGETS for name, data in corpus(target)]


@pytest.fixture(autouse=True)
def _quiet():
    """Thousands of refusals are no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("target", "name", "data"), KEPT, ids=[name for _, name, _ in KEPT])
def test_an_input_that_was_kept_is_taken_well(target, name, data):
    TARGETS[target][1](data)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_spoiled_inside_a_valid_form_is_taken_or_refused(target):
    seed = random.SystemRandom().getrandbits(32)
    print(f"again: python -m tests.hostile.fuzz --target {target} --seed {seed}")
    assert run(target, seed, SECONDS) > 0
