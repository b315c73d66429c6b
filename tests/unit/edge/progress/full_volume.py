"""An edge's process on a volume that its spool fills, run by test_full_volume.py; prints what becomes of it as JSON.

The volume is the folder that is given, a small tmpfs.
"""

import json
import sys
from pathlib import Path

from tests.unit.edge.delivery.test_window import position
from tests.unit.edge.progress import spooling

_BATCH_BYTES = 64_000


def fill(edge) -> int:
    """Put batches until the spool has no space; return the number of the last one."""
    number = 0
    while "spool" not in edge.figures.warned:
        number += 1
        edge.put(number)
        edge.spooler.step()
        edge.progress.save_now()
    return number


def deliver(edge) -> None:
    """Have everything accepted, as when the path is back."""
    for _ in range(400):
        for delivery in edge.send().values():
            edge.outbox.accepted(delivery)
        edge.progress.save_now()
        edge.spooler._full_until = 0.0
        edge.spooler.step()
        if not len(edge.window) and not len(edge.spool):
            return


def main(folder: Path) -> None:
    spooling.SIZE = _BATCH_BYTES
    edge = spooling.Process(folder, limit_bytes=1 << 20, megabytes=64)
    edge.start()
    last = fill(edge)
    # What is left of the volume goes to somebody else.
    with (folder / "other").open("wb", buffering=0) as other:
        try:
            while other.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass
    killed = len(edge.spool)
    edge.spool.close()
    edge = spooling.Process(folder, limit_bytes=1 << 20, megabytes=64)
    edge.start()
    deliver(edge)
    result = edge.state.read(spooling.SOURCE)
    print(
        json.dumps(
            {
                "kept": killed,
                "left": len(edge.spool),
                "waiting": len(edge.window),
                "acknowledged": result.acknowledged,
                "spooled": str(position(killed)),
                "last": last,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
