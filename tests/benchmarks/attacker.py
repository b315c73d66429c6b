"""A rogue edge at a bridge: everything that tests/hostile sends, again and again. A process of its own.

Arguments: the interconnect's port, the rogue's source, an honest one, and seconds; where the bridge has certificates, their
folder and the name of the rogue's. It says `ready`, waits for a line, and prints how many deliveries it has sent.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.benchmarks.feeder import wait_for_start
from tests.hostile import peers
from tests.hostile.peers import Rogue, certified, send_raw
from tests.rules.waiting import eventually

#: How much of a delivery that does not end is sent.
_ENDLESS_BYTES, _PART = 80 << 20, 4 << 20


def attack(connect: Callable[[], Rogue], source: str, honest: str) -> Iterator[int]:
    """Do all of it once; yield how many deliveries each connection has sent."""
    # Those in Avro would make the bridge, which has no registry, rest this source for a while: the attack would be a weaker one.
    messages = [each for each in peers.batches(source, honest) if each.properties["version"] != 3]
    rogue = connect().attached()
    for number, message in enumerate(messages):
        rogue.act(lambda peer, number=number, message=message: peer.link.send(message, tag=f"m{number}"))
    for number, data in enumerate(peers.MESSAGES.values()):
        rogue.act(send_raw(data, f"raw{number}"))
    with suppress(AssertionError):
        eventually(lambda: rogue.closed or (len(rogue.rejected) > 0 and rogue.unanswered == 0), 5, every=0.005)
    yield len(messages) + len(peers.MESSAGES)
    rogue.close()
    for act in (peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly, peers.attach_many):
        rogue = connect().attached()
        rogue.act(act)
        with suppress(AssertionError):
            eventually(lambda rogue=rogue: rogue.gone.is_set() or rogue.closed, 5, every=0.005)
        rogue.close()
        yield 0
    rogue = connect().attached()

    def stream(peer: Rogue) -> None:
        if not peer.link.current:
            peer.link.delivery("endless")
        peer.link.stream(bytes(_PART))

    for _ in range(_ENDLESS_BYTES // _PART):
        rogue.act(stream)
    with suppress(AssertionError):
        eventually(lambda: rogue.closed, 5, every=0.005)
    rogue.close()
    yield 1


def main(port: str, source: str, honest: str, seconds: str, folder: str = "", name: str = "") -> None:
    """Attack."""
    address = f"cdc/{source}"
    connect = partial(Rogue, int(port), address)
    if folder:
        connect = partial(certified, Path(folder), name, int(port), address)
    wait_for_start()
    until, sent = time.monotonic() + int(seconds), 0
    while time.monotonic() < until:
        # A link that is refused for a while is one of the answers.
        with suppress(AssertionError):
            for count in attack(connect, source, honest):
                sent += count
                if time.monotonic() > until:
                    break
    print(sent, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
