"""What the fuzzer kept is taken well by now; and each target is fed for some seconds, with another seed each time."""

import logging
import random
import re
import time

import pytest

from tests.hostile.fuzz import TARGETS, corpus, main, run

#: For each target: a minute in all.
SECONDS = 60.0 / len(TARGETS)
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
def test_what_is_spoiled_inside_a_valid_form_is_taken_or_refused(target, record_property):
    seed = random.SystemRandom().getrandbits(32)
    print(f"again: python -m tests.hostile.fuzz --target {target} --seed {seed}")
    count = run(target, seed, SECONDS)
    record_property("shown", f"fuzz {target}: {count} inputs of seed {seed}")
    assert count > 0


def test_minutes_are_those_of_each_target_and_seed_and_inputs_are_said(capsys):
    began = time.monotonic()
    assert main(["--minutes", "0.01", "--seed", "5", "--target", "position", "--target", "request"]) == 0
    assert time.monotonic() - began > 2 * 0.6
    *_, of_one, all_of_them = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"request: [1-9]\d* inputs", of_one)
    assert re.fullmatch(r"[1-9]\d* inputs of 2 targets from seed 5 on, 0 faults", all_of_them)
