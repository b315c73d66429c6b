"""A bridge under attack: a process of its own with three honest sources that write, and a console beside it."""

import http.client
import itertools
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from headrace.status.command import answer_of
from headrace.status.table import screen
from headrace.terminal import Terminal
from infra.local.server import free_port
from tests.amqp.interconnect_ends import Edge, at, pem, sealed
from tests.benchmarks import attacker
from tests.benchmarks.bridge_setup import Feeder
from tests.end_to_end.follower import Follower
from tests.hostile.peers import certified
from tests.hostile.test_console import REQUESTS, SMUGGLED
from tests.integration.requests.deliveries import section
from tests.rules.waiting import eventually

ROGUE = "jakarta/bank"
HONEST = ("london/one", "london/two", "london/three")
#: Records of a batch; seconds between two batches of a source; batches that a source has on the way at most.
_STEP, _PACE_SECONDS, _AHEAD = 5, 0.02, 10
_NUMBER = re.compile(rb'"n": (\d+)')
_TOKEN = "a-token-of-the-console"


class Honest(threading.Thread):
    """An honest source: sends batch after batch over the edge's own sender, at a steady pace where all is well."""

    def __init__(self, url, source, files):
        super().__init__(daemon=True)
        self.source, self.edge, self.upto, self.error = source, Edge(url, source=source, **files), 0, None
        #: When each batch was handed over, by the monotonic clock in seconds.
        self.handed = []
        self._halt = threading.Event()
        self.start()

    def run(self):
        try:
            for last in itertools.count(_STEP, _STEP):
                batch = sealed(last - _STEP + 1, last, source=self.source, size=200)
                self.handed.append(time.monotonic())
                self.edge.put(batch)
                eventually(lambda: self._acknowledged() >= last - _AHEAD * _STEP, 120, every=0.005)  # noqa: B023 - now.
                if self._halt.wait(_PACE_SECONDS):
                    break
            self.edge.acknowledged(at(last), 120)
            self.upto = last
        except BaseException as error:  # noqa: BLE001 - the test raises it.
            self.error = error

    def _acknowledged(self):
        self.edge.outbox.check()
        self.upto = self.edge.outbox.progress()[0].commit
        return self.upto

    def stop(self):
        self._halt.set()
        self.join(120)
        self.edge.close()
        if self.error is not None:
            raise self.error


class Stopwatch:
    """How long the records of honest sources take from where a batch is handed over to where Kafka's consumers can read them."""

    def __init__(self, bootstrap, topic, honest):
        self._honest = honest
        #: Seconds, by partition, in the order of the records.
        self._seconds = {number: [] for number in range(1, len(honest) + 1)}
        self._follower = Follower(bootstrap, topic, len(honest) + 1, each=self._arrived)

    def _arrived(self, value, moment, partition):
        if partition in self._seconds:
            batch = (int(_NUMBER.search(value)[1]) - 1) // _STEP
            self._seconds[partition].append(moment - self._honest[partition - 1].handed[batch])

    def percentile(self, batches):
        """Return the 99th percentile, in seconds, of so many batches of each source that are handed over from now on."""
        begins = [len(each.handed) for each in self._honest]
        ends = [(number, (begin + batches) * _STEP) for number, begin in enumerate(begins, 1)]
        eventually(
            lambda: all(len(self._seconds[number]) >= end for number, end in ends), 300, saying="all of it is readable"
        )
        count = batches * _STEP
        seconds = [each for number, end in ends for each in self._seconds[number][end - count : end]]
        return statistics.quantiles(seconds, n=100)[98]

    def stop(self):
        self._follower.stop()


class WatchedConsole:
    """`headrace console` as a process, with a token, and visitors that have none."""

    def __init__(self, folder, bridge_file, *options):
        self.port, self.token = free_port(), _TOKEN
        (folder / "token").write_text(_TOKEN)
        arguments = ["--config", str(bridge_file), "--listen", f"127.0.0.1:{self.port}", *options]
        with (folder / "console.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "console", *arguments, "--token", f"file:{folder / 'token'}"],
                stdout=log,
                stderr=log,
            )

    def page(self, path="/"):
        """Return a page, as somebody with the token gets it."""
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        asking.request("GET", path, headers={"authorization": f"Bearer {_TOKEN}"})
        answer = asking.getresponse()
        text = answer.read().decode()
        asking.close()
        assert answer.status == 200, (path, answer.status)
        return text

    def attack(self):
        """Send what no browser sends, each by a connection; return connections that are left open, each in a request."""
        for method, path, headers, body in REQUESTS.values():
            asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            asking.request(method, path, body, headers)
            assert asking.getresponse().status < 500
            asking.close()
        left = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(150)]
        for connection, data in zip(left, itertools.cycle(SMUGGLED.values()), strict=False):
            connection.sendall(data[:40])
        return left

    def close(self):
        self.process.kill()
        self.process.wait(60)


class Attacked:
    """A bridge in a process of its own, three honest sources that write, a console, and what the attackers have."""

    def __init__(self, kafka, topic, outside, files):
        self.bootstrap, self.files = kafka.bootstrap, files
        self.topic, self.requests, self.answers = topic(4), topic(), topic()
        self.alerts = topic(1, **{"max.message.bytes": 4_000_000})
        topic(name=f"{self.alerts}.dead-letters", **{"max.message.bytes": 4_000_000})
        names = pem(files, "bridge")
        secure = (
            "".join(f'{name} = "{path}"\n' for name, path in names.items())
            + 'identities = { "edge-3" = ["london/*"] }\n'
        )
        more = f'\n[requests]\ntopic = "{self.requests}"\nanswers_topic = "{self.answers}"\n'
        more += section(self.alerts, receivers={"london/bank": ["alerts/london"]})
        self.metrics = f"127.0.0.1:{free_port()}"
        sources = {source: [number] for number, source in enumerate((ROGUE, *HONEST))}
        self.bridge = outside(self.bootstrap, sources, topic=self.topic, secure=secure, more=more, metrics=self.metrics)
        self.port = self.bridge.port
        self.console = WatchedConsole(files, self.bridge.path)
        url = f"amqps://localhost:{self.port}"
        self.honest = [Honest(url, source, pem(files, "edge-3")) for source in HONEST]

    def rogue(self, address=f"cdc/{ROGUE}"):
        return certified(self.files, "jakarta-bank", self.port, address)

    def rogues(self, seconds=600):
        """Return a process that attacks again and again, as fast as it can."""
        process = Feeder(attacker, self.port, ROGUE, HONEST[0], seconds, self.files, "jakarta-bank")
        process.ready()
        return process

    def goes_on(self):
        """Return once each honest source was acknowledged something new, in a bridge that lives; the console shows it."""
        before = [each.upto for each in self.honest]
        eventually(
            lambda: all(each.upto > seen for each, seen in zip(self.honest, before, strict=True)),
            120,
            saying="honest sources go on",
        )
        assert self.bridge.process.poll() is None, "the bridge has ended"
        page = eventually(self.console.page, 120, saying="the console answers")
        assert all(source in page for source in HONEST)
        assert self.console.process.poll() is None, "the console has ended"

    def refused(self, door, sender):
        text = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30).read().decode()
        return refusals("headrace_bridge", text, door, sender)

    def revoke(self):
        """Take its source from the rogue's certificate, by one line, and send the bridge SIGHUP."""
        self.bridge.path.write_text(
            self.bridge.path.read_text().replace("identities = { ", f'identities = {{ "{ROGUE}" = [], ')
        )
        self.bridge.process.send_signal(signal.SIGHUP)

    @property
    def memory(self):
        """The most that the bridge has needed, in bytes."""
        return most_memory(self.bridge.pid)

    def close(self):
        for each in self.honest:
            each.edge.close()
        self.console.close()


def refusals(prefix, text, door, sender):
    """Return how many inputs of a sender's a door has refused, by a part's metrics."""
    match = re.search(
        rf'^{prefix}_refused_inputs_total\{{door="{door}",sender="{re.escape(sender)}"\}} (\S+)', text, re.MULTILINE
    )
    return float(match[1]) if match else 0.0


def most_memory(pid):
    """Return the most that a process has needed, in bytes."""
    return peak_in(Path(f"/proc/{pid}/status").read_text(encoding="ascii"))


def peak_in(status):
    """Return that of a process by its status, as the system has it."""
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10


def status_of(metrics):
    """Return what `headrace status` prints of a bridge, by its address of metrics."""
    answer, why = answer_of(metrics)
    assert answer is not None, why
    console = Terminal(width=200, no_color=True)
    with console.capture() as capture:
        console.print(screen([answer], 200))
    return capture.get()
