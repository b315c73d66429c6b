"""An edge's process as far as spooling goes: what it makes of what is on the disk, and what it receives meanwhile."""

from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.postgres.checkpoint import Commits, PostgresCheckpoint
from edge.progress.checkpoint import Progress, State
from edge.progress.spool import Spool
from edge.progress.spooler import Spooler
from tests.unit.edge.delivery.test_window import START, batch
from tests.unit.edge.progress.test_checkpoint import checkpoint

SOURCE = "jakarta/bank"
SIZE = 1000
MEGABYTE = 1 << 20


class Process:
    """What one process of an edge has, made from what is on the disk."""

    def __init__(self, folder, *, after_seconds=0.0, limit_bytes=8 * SIZE, megabytes=4):
        self.state = State(folder, PostgresCheckpoint)
        found = self.state.read(SOURCE)
        if found is None:
            found = checkpoint(START, 1)
            self.state.write(found)
        self.outbox = Outbox(limit_bytes=limit_bytes, tail=found.position, confirmed=found.confirmed)
        self.spool = Spool(folder, SOURCE, megabytes * MEGABYTE)
        self.spool.open(found.position, found.promised, found.confirmed)
        self.figures = Figures()
        self.spooler = Spooler(self.spool, self.outbox, self.figures, after_seconds=after_seconds)
        self.progress = Progress(self.state, found, self.outbox, self.advanced)
        #: Places that this process got: others say nothing to an engine that keeps more than a number for each.
        self.reported = {found.confirmed}

    def advanced(self, known, position, place):
        assert place in self.reported
        return Commits().advanced(known, position, place)

    @property
    def window(self):
        return self.outbox.window

    def start(self):
        return self.progress.restart()

    def put(self, *numbers, **options):
        batches = [batch(number, size=SIZE, **options) for number in numbers]
        self.reported |= {each.confirm for each in batches}
        self.outbox.put(batches)

    def note(self, place):
        self.reported.add(place)
        self.outbox.note(place)

    def spool_all(self):
        while self.spooler.step():
            pass

    def send(self):
        """Take all that may be sent; return the deliveries by commit."""
        results = {}
        while (taken := self.outbox.take()) is not None:
            results[taken[1].last.commit] = taken[0]
        return results
