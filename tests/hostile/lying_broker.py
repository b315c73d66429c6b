"""A broker that answers in Kafka's protocol, and not always the truth: what a bridge reads of it is of its own making.

It speaks the oldest versions that librdkafka takes, in which each answer is a few fixed fields. Each kind of answer can be
replaced, by a function of the honest one's parts.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

#: Requests by Kafka's numbers, and the one version of each that is spoken.
PRODUCE, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 0, 2, 3, 9, 10, 15, 16
API_VERSIONS, INIT_PRODUCER, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS, DESCRIBE_CONFIGS = (
    18,
    22,
    24,
    25,
    26,
    28,
    32,
)
JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
_FETCH = 1
_FIRST_VERSION = (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    INIT_PRODUCER,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END,
    COMMIT_OFFSETS,
)
_VERSIONS = dict.fromkeys((*_FIRST_VERSION, DESCRIBE_CONFIGS), 0) | {
    PRODUCE: 3, _FETCH: 4, LIST_OFFSETS: 1, METADATA: 4, OFFSET_FETCH: 1, FIND_COORDINATOR: 1,
    JOIN: 5, HEARTBEAT: 3, LEAVE: 1, SYNC: 3,
}  # fmt: skip
_UNSUPPORTED_VERSION, _NO_LEADER = 35, 5


class Partition(NamedTuple):
    """What the broker says of one partition."""

    #: Kafka's number of an error; 0 for none.
    error: int = 0
    leader: int = 1
    low: int = 0
    high: int = 0
    offset: int = -1
    metadata: bytes = b""


class LyingBroker:
    """One broker with one topic and one group, on a port of 127.0.0.1."""

    def __init__(self, topic: str, group: str, partitions: Mapping[int, Partition]) -> None:
        self._topic, self._group = topic, group
        self.partitions = dict(partitions)
        #: Members of the group as they are described: id, client, host, metadata, assignment.
        self.members: list[tuple[str, str, str, bytes, bytes]] = []
        #: The settings of the topic.
        self.settings: dict[str, str | None] = {"max.message.bytes": "1048576", "cleanup.policy": "delete"}
        #: Of the group that a member joins.
        self.generation = 1
        #: The offsets that transactions have committed, and of each whether it was; else it was aborted.
        self.committed: dict[int, int] = {}
        self.ended: list[bool] = []
        #: What is answered instead: by the kind of request, given the honest body.
        self.lies: dict[int, Callable[[bytes], bytes]] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Answer no more who connects."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            while len(head := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">i", head)[0])
                kind, version, number, length = struct.unpack(">hhih", request[:10])
                if kind not in _VERSIONS or kind == _FETCH:
                    # It has no records.
                    return
                body = self._answer(kind, version, request[10 + max(0, length) :])
                body = self.lies.get(kind, lambda honest: honest)(body)
                connection.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    def _answer(self, kind: int, version: int, request: bytes) -> bytes:
        if kind == API_VERSIONS:
            error = _UNSUPPORTED_VERSION if version else 0
            return _short(error) + _array(_short(key) + _short(each) * 2 for key, each in _VERSIONS.items())
        return {
            METADATA: self._metadata,
            FIND_COORDINATOR: self._coordinator,
            OFFSET_FETCH: self._committed,
            LIST_OFFSETS: self._offsets,
            DESCRIBE_GROUPS: self._groups,
            LIST_GROUPS: lambda _request: _short(0) + _array([]),
            PRODUCE: self._produced,
            INIT_PRODUCER: lambda _request: _int(0) + _short(0) + _long(7) + _short(0),
            ADD_PARTITIONS: lambda request: _int(0) + self._taken(request, 10),
            ADD_OFFSETS: lambda _request: _int(0) + _short(0),
            END: self._ended,
            COMMIT_OFFSETS: self._offsets_taken,
            DESCRIBE_CONFIGS: self._described,
            JOIN: self._joined,
            SYNC: self._synced,
            HEARTBEAT: lambda _request: _int(0) + _short(0),
            LEAVE: lambda _request: _int(0) + _short(0),
        }[kind](request)

    def _broker(self) -> bytes:
        host, port = self.bootstrap.split(":")
        return _int(1) + _text(host) + _int(int(port))

    def _metadata(self, _request: bytes) -> bytes:
        partitions = _array(
            _short(_NO_LEADER if each.leader < 0 else 0) + _int(number) + _int(each.leader) + 2 * _array([_int(1)])
            for number, each in self.partitions.items()
        )
        topic = _short(0) + _text(self._topic) + b"\0" + partitions
        return _int(0) + _array([self._broker() + _short(-1)]) + _text("c") + _int(1) + _array([topic])

    def _coordinator(self, _request: bytes) -> bytes:
        return _int(0) + _short(0) + _short(-1) + self._broker()

    def _committed(self, request: bytes) -> bytes:
        is_known = request.startswith(_text(self._group))
        return self._of_partitions(
            {
                number: _long(each.offset) + _short(len(each.metadata)) + each.metadata + _short(each.error)
                for number, partition in self.partitions.items()
                for each in [partition if is_known else Partition()]
            }
        )

    def _offsets(self, request: bytes) -> bytes:
        # One topic: behind its name, each partition with the time that is asked for, -2 for the beginning.
        length = struct.unpack(">h", request[8:10])[0]
        return self._of_partitions(
            {
                number: _short(each.error) + _long(-1) + _long(each.low if time == -2 else each.high)
                for number, time in struct.iter_unpack(">iq", request[14 + length :])
                if (each := self.partitions.get(number)) is not None
            }
        )

    def _produced(self, request: bytes) -> bytes:
        at = _behind_text(request, 0) + 6
        numbers, at = [], _behind_text(request, at + 4)
        for _ in range(struct.unpack_from(">i", request, at)[0]):
            number, size = struct.unpack_from(">ii", request, at + 4)
            numbers.append(number)
            at += 8 + size
        partitions = {number: self.partitions[number] for number in numbers}
        return self._of_partitions(
            {number: _short(each.error) + _long(each.high) + _long(-1) for number, each in partitions.items()}
        ) + _int(0)

    def _taken(self, request: bytes, fixed: int) -> bytes:
        """Answer a request that has partitions alone, behind a text and so many bytes."""
        at = _behind_text(request, _behind_text(request, 0) + fixed + 4)
        count = struct.unpack_from(">i", request, at)[0]
        return self._of_partitions(dict.fromkeys(struct.unpack_from(f">{count}i", request, at + 4), _short(0)))

    def _offsets_taken(self, request: bytes) -> bytes:
        at = _behind_text(request, _behind_text(request, 0)) + 10
        at = _behind_text(request, at + 4)
        for _ in range(struct.unpack_from(">i", request, at)[0]):
            number, offset = struct.unpack_from(">iq", request, at + 4)
            self.committed[number] = offset
            at = _behind_text(request, at + 16) - 4
        return _int(0) + self._of_partitions(dict.fromkeys(self.committed, _short(0)))

    def _described(self, _request: bytes) -> bytes:
        settings = _array(
            _text(name) + (_short(-1) if value is None else _text(value)) + b"\0\0\0"
            for name, value in self.settings.items()
        )
        return _int(0) + _array([_short(0) + _short(-1) + b"\x02" + _text(self._topic) + settings])

    def _ended(self, request: bytes) -> bytes:
        self.ended.append(bool(request[-1]))
        return _int(0) + _short(0)

    def _joined(self, request: bytes) -> bytes:
        """Have the one member lead the group, by the first protocol that it names."""
        # Behind the group two times; then the member's id, its instance's name, and the kind of its protocols.
        at = _behind_text(request, _behind_text(request, _behind_text(request, _behind_text(request, 0) + 8))) + 4
        name, at = request[at : (behind := _behind_text(request, at))], behind
        metadata = request[at : at + 4 + struct.unpack_from(">i", request, at)[0]]
        own = _text("member-1")
        members = _array([own + _short(-1) + metadata])
        return _int(0) + _short(0) + _int(self.generation) + name + 2 * own + members

    def _synced(self, request: bytes) -> bytes:
        """Give the member what it has assigned to itself."""
        at = _behind_text(request, _behind_text(request, _behind_text(request, 0) + 4))
        if struct.unpack_from(">i", request, at)[0] == 0:
            # It does not lead.
            return _int(0) + _short(0) + _bytes(b"")
        at = _behind_text(request, at + 4)
        return _int(0) + _short(0) + request[at : at + 4 + struct.unpack_from(">i", request, at)[0]]

    def _of_partitions(self, answers: Mapping[int, bytes]) -> bytes:
        return _array([_text(self._topic) + _array(_int(number) + each for number, each in answers.items())])

    def _groups(self, request: bytes) -> bytes:
        length = struct.unpack(">h", request[4:6])[0]
        members = _array(
            _text(name) + _text(client) + _text(host) + _bytes(metadata) + _bytes(assignment)
            for name, client, host, metadata, assignment in self.members
        )
        group = request[6 : 6 + length].decode()
        return _array([_short(0) + _text(group) + _text("Stable") + _text("consumer") + _text("range") + members])


def _behind_text(data: bytes, at: int) -> int:
    return at + 2 + max(0, int(struct.unpack_from(">h", data, at)[0]))


def _short(number: int) -> bytes:
    return struct.pack(">h", number)


def _int(number: int) -> bytes:
    return struct.pack(">i", number)


def _long(number: int) -> bytes:
    return struct.pack(">q", number)


def _text(text: str) -> bytes:
    return _short(len(text.encode())) + text.encode()


def _bytes(data: bytes) -> bytes:
    return _int(len(data)) + data


def _array(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return _int(len(items)) + b"".join(items)
