"""Foreign bytes *inside* valid forms: what is spoiled is packed again, so that no checksum and no outer form refuses it first.

`make fuzz MINUTES=10` feeds each target for so long. A seed is drawn for each run and printed; an input that a target did not
take well is kept in tests/hostile/corpus, and fed again by every later run.
"""

import argparse
import base64
import logging
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.fuzz_answers import TARGETS as ANSWERS
from tests.hostile.fuzz_bridge import TARGETS as BRIDGE
from tests.hostile.fuzz_debezium import TARGETS as DEBEZIUM
from tests.hostile.fuzz_edge import TARGETS as EDGE
from tests.hostile.fuzz_lake import TARGETS as LAKE
from tests.hostile.fuzz_requests import TARGETS as REQUESTS

#: A run ends with so many.
_MOST_FAULTS = 10
CORPUS = Path(__file__).parent / "corpus"
TARGETS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]] = {
    **BRIDGE,
    **EDGE,
    **DEBEZIUM,
    **REQUESTS,
    **ANSWERS,
    **LAKE,
}


def corpus(target: str) -> Iterator[tuple[str, bytes]]:
    """Yield the kept inputs of a target, with their names."""
    for path in sorted(CORPUS.glob(f"{target}-*.b64")):
        yield path.name, base64.b64decode(path.read_text())


def run(target: str, seed: int, seconds: float, most: int = sys.maxsize) -> int:
    """Feed a target for some seconds, or with `most` inputs; return how many. Keeps an input whose error it raises."""
    draw, feed = TARGETS[target]
    until, count = time.monotonic() + seconds, 0
    while count < most and time.monotonic() < until:
        data = draw(random.Random(f"{seed}/{count}"))
        try:
            feed(data)
        except Exception:
            path = CORPUS / f"{target}-{seed}-{count}.b64"
            path.write_text(base64.encodebytes(data).decode())
            print(f"{target}: input {count} of seed {seed} is kept as {path}", flush=True)
            raise
        count += 1
    return count


def main(arguments: list[str] | None = None) -> int:
    """Feed every target for some minutes each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--target", choices=TARGETS, action="append")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    targets, faults, total = options.target or list(TARGETS), 0, 0
    print(f"seed {options.seed}", flush=True)
    for target in targets:
        for name, data in corpus(target):
            print(f"{target}: {name}", flush=True)
            TARGETS[target][1](data)
        until, seed, count = time.monotonic() + options.minutes * 60, options.seed, 0
        while faults < _MOST_FAULTS and (left := until - time.monotonic()) > 0:
            try:
                count += run(target, seed, left)
            except Exception:  # noqa: BLE001 - all of them are shown.
                traceback.print_exc()
                faults += 1
            seed += 1
        print(f"{target}: {count} inputs", flush=True)
        total += count
    print(f"{total} inputs of {len(targets)} targets from seed {options.seed} on, {faults} faults", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
