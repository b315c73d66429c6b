"""The budget of memory of `headrace verify` (S8): what a rogue edge answers costs it bounded memory, measured."""

import itertools
import subprocess
import sys
import threading
from typing import get_args

from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.requests import MOST_PARTS, PART_CHARACTERS, Content, Outcome, Part, decode_request, encode, parts
from headrace.verify import contract
from tests.bridge.asked_edges import AskedTopics
from tests.hostile.attacked import peak_in

#: What a verification may need in all, in bytes, without Spark: as much as a bridge.
_MEMORY = 512 << 20
#: Asks a rogue edge for verifications, one for each number of the second argument, and prints what ended each.
_HEADQUARTERS = """
import sys
from headrace.configuration.lake import Kafka
from headrace.configuration.sections import Topics
from headrace.errors import ReplicationError
from headrace.requests import MOST_PARTS
from headrace.verify import comparison
from headrace.verify.canonical import SilverType
from headrace.verify.sources import RemoteDatabase
import spark_jobs.verify.verify
from spark_jobs.kafka.requests import RequestTopics

wire = RequestTopics(Kafka(bootstrap=sys.argv[1]), Topics(*sys.argv[3:5]))
for _ in range(int(sys.argv[2])):
    try:
        with RemoteDatabase.connect("a/one", wire, seconds=60) as remote:
            table = remote.tables()[0]
            side, grid = remote.side(table, [], []), comparison.grid(comparison.hashes(), 8)
            side.digests(grid)
            side.hashes(grid, [0], 10_000)
            side.rows(grid, [0], ["0" * 32])
        print("compared", flush=True)
    except ReplicationError as error:
        print(type(error).__name__, len(str(error)), flush=True)
print(open("/proc/self/status").read())
"""


class RogueEdge(threading.Thread):
    """Answers what it is asked as a verification asks an edge, each session in another way, with the most that it may."""

    def __init__(self, bootstrap, topics):
        super().__init__(daemon=True)
        self._topics, self._sessions, self._over = topics, {}, threading.Event()
        client = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = Consumer(client | {"group.id": "rogue", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topics.requests, 0, 0)])
        self._producer = Producer(client | {"queue.buffering.max.messages": 1_000_000})
        self.start()

    def run(self):
        while not self._over.is_set():
            record = self._consumer.poll(0.1)
            if record is not None and record.error() is None:
                request = decode_request(record.value())
                arguments = contract.parse_arguments(request.arguments)
                number = self._sessions.setdefault(arguments.session, len(self._sessions))
                for part in (ANSWERS[number])(request, arguments.what):
                    self._producer.produce(self._topics.answers, part, b"a/one")
                    self._producer.poll(0)
                self._producer.flush(60)

    def stop(self):
        self._over.set()
        self.join(60)
        self._consumer.close()


def answered(request, result):
    """Yield an answer to a step as the edge would send it."""
    yield from map(encode, parts(request, "done", Content(data={"state": "done", "result": result})))


def _listing(*tables):
    """Return what answers with pages of such tables for ever, and with nothing else."""

    def answer(request, step):
        opened = {"engine": "postgresql"} if isinstance(step, contract.Open) else None
        return answered(request, opened or {"tables": list(tables), "total": 1 << 62})

    return answer


def _table(**members):
    return {"schema": "s", "name": "t", "columns": {}, "key": []} | members


def _lists(request, step):
    """Answer with as many empty lists as there is room for."""
    del step
    return answered(request, [[]] * 2_600_000)


def _never_whole(request, _step):
    """Send each part of each kind of answer that there is, of the widest characters, but the last ones; and then an error."""
    text = "\U0001f600" * PART_CHARACTERS
    for by, outcome in itertools.product(("edge", "bridge"), get_args(Outcome)):
        for number in range(MOST_PARTS - 1):
            yield encode(
                Part(
                    id=request.id,
                    source="a/one",
                    kind="verify",
                    outcome=outcome,
                    by=by,
                    part=number,
                    last=False,
                    content=text,
                )
            )
    yield from map(encode, parts(request, "failed", Content(exit_code=3, message="over")))


def _many_sums(request, step):
    """List a table, and more sums, hashes and rows than were asked for."""
    match step:
        case contract.Open():
            return answered(request, {"engine": "postgresql"})
        case contract.Tables():
            return answered(request, {"tables": [_table()], "total": 1})
        case contract.Digests():
            return answered(request, [[number, 1, "1", "1"] for number in range(350_000)])
        case contract.Hashes():
            return answered(request, [["0", "1"]] * 750_000)
    return answered(request, [{"key_hash": "", "key": ["a"], "columns": [""]}] * 150_000)


#: By session: what a rogue edge answers.
ANSWERS = (
    _listing(*(_table(columns={f"{c}": {"name": f"{t}.{c}"} for c in range(1000)}) for t in range(250))),
    _listing(_table(treated={f"{number}": "" for number in range(550_000)})),
    _listing(_table(unsteady="\U0001f600" + "x" * 7_000_000)),
    _listing(_table(key=["a"] * 1_900_000)),
    _lists, _never_whole, _many_sums,
)  # fmt: skip


def test_what_a_rogue_edge_answers_costs_a_verification_bounded_memory(kafka, topic):
    """The process of `headrace verify`, without Spark's."""
    topics = AskedTopics(topic).names
    edge = RogueEdge(kafka.bootstrap, topics)
    arguments = [kafka.bootstrap, str(len(ANSWERS)), *topics]
    headquarters = subprocess.run(
        [sys.executable, "-c", _HEADQUARTERS, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=500
    )
    edge.stop()
    said = [each.split() for each in headquarters.stdout.splitlines()[: len(ANSWERS)]]
    memory = peak_in(headquarters.stdout)
    print(f"--- most memory: {memory >> 20} MB")
    # What is too much is refused in few words,
    assert [each[0] for each in said] == ["CorruptInput"] * 6 + ["compared"], said
    assert all(int(length) < 500 for _, *lengths in said for length in lengths)
    # and within what a bridge may need, too.
    assert memory < _MEMORY
