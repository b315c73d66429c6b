"""A wide-area link on one machine: two network namespaces, and between them a process that delays, drops and limits packets.

Real TCP of the kernel over an emulated path: the two ends of the link are TUN devices, each in a namespace of its own, and every
packet between them passes through `carry`. It needs /dev/net/tun, and root or user namespaces; no module such as netem. Run as
a program by distance.py: `python -m tests.benchmarks.wan LINK END END`, each end a command to run in its namespace.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_TUNSETIFF, _TUN, _NO_INFORMATION = 0x400454CA, 0x0001, 0x1000
_MTU = 1500
#: Addresses of the near end, where the bridge is, and of the far one, where the edge is.
NEAR, FAR = "10.99.0.1", "10.99.0.2"


@dataclass(frozen=True, kw_only=True)
class Link:
    """What the link between the two ends is like, the same in both directions."""

    round_trip_ms: float = 200.0
    megabits: float = 100.0
    #: Each packet is late by up to so much more; none overtakes another.
    jitter_ms: float = 0.0
    #: Share of packets that are lost.
    loss: float = 0.0
    #: Largest socket buffers of TCP that the hosts allow, to send and to receive; the defaults are Linux's.
    send_megabytes: int = 4
    receive_megabytes: int = 6

    def argument(self) -> str:
        """Return the link as an argument of this program."""
        return json.dumps(asdict(self))


class _Direction:
    """Packets on their way from one device to the other."""

    def __init__(self, link: Link, source: int, sink: int, seed: int) -> None:
        self.source, self.sink = source, sink
        self._bytes_a_second = link.megabits * 125_000
        self._delay, self._jitter, self._loss = link.round_trip_ms / 2000, link.jitter_ms / 1000, link.loss
        # What a router in front of a link of this kind keeps: the bandwidth-delay product.
        self._queue_seconds = max(0.05, link.round_trip_ms / 1000)
        self._chance = random.Random(seed)
        self._free_at = self._last = 0.0
        self._waiting: list[tuple[float, int, bytes]] = []
        self._count = 0

    def take(self) -> None:
        now = time.monotonic()
        for _ in range(64):
            try:
                packet = os.read(self.source, 65536)
            except BlockingIOError:
                return
            self._free_at = max(now, self._free_at)
            if self._chance.random() < self._loss or self._free_at - now > self._queue_seconds:
                continue
            self._free_at += len(packet) / self._bytes_a_second
            self._last = max(self._last, self._free_at + self._delay + self._jitter * self._chance.random())
            self._count += 1
            heapq.heappush(self._waiting, (self._last, self._count, packet))

    def give(self) -> float:
        """Hand out what is due; return seconds until the next."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self.sink, heapq.heappop(self._waiting)[2])
        return self._waiting[0][0] - now if self._waiting else 1.0


def carry(link: Link, near: int, far: int, until: Any) -> None:
    """Carry packets between two devices until `until` says so."""
    with contextlib.suppress(PermissionError):
        # It is the wire, which waits for no processor.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    directions = [_Direction(link, near, far, 1), _Direction(link, far, near, 2)]
    poll = select.poll()
    for direction in directions:
        os.set_blocking(direction.source, False)
        poll.register(direction.source, select.POLLIN)
    by_source = {direction.source: direction for direction in directions}
    wait = 1.0
    while not until():
        for descriptor, _ in poll.poll(min(100, max(0, int(wait * 1000)))):
            by_source[descriptor].take()
        wait = min(direction.give() for direction in directions)


def _isolate() -> None:
    """Enter a network namespace of one's own; as an ordinary user, in a user namespace of one's own too."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_NET if user == 0 else _NEW_NET | _NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace to be had")
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - of the kernel.
                file.write(text)


def _device(address: str, link: Link) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"wan0", _TUN | _NO_INFORMATION))
    sizes = f"net.ipv4.tcp_wmem='4096 65536 {link.send_megabytes << 20}'"
    sizes += f" net.ipv4.tcp_rmem='4096 131072 {link.receive_megabytes << 20}'"
    for command in (
        "ip link set lo up",
        f"ip address add {address}/24 dev wan0",
        f"ip link set wan0 mtu {_MTU} txqueuelen 10000 up",
        f"sysctl -qw {sizes}",
    ):
        subprocess.run(shlex.split(command), check=True)
    return device


def _main() -> None:
    link, near_command, far_command = Link(**json.loads(sys.argv[1])), *map(shlex.split, sys.argv[2:4])
    with contextlib.suppress(PermissionError):
        # What is measured is the link, not who else is on this machine.
        os.nice(-10)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _isolate()
        socket.send_fds(theirs, [b"x"], [_device(FAR, link)])
        theirs.recv(1)
        os.execvp(far_command[0], far_command)
    theirs.close()
    _isolate()
    near = _device(NEAR, link)
    _, (far,), _, _ = socket.recv_fds(ours, 1, 1)
    process = subprocess.Popen(near_command)
    ours.send(b"x")
    try:
        carry(link, near, far, lambda: process.poll() is not None)
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    sys.exit(process.returncode)


if __name__ == "__main__":
    _main()
