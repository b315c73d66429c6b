"""An S3 server in memory, run by the Python of `.setup/object-store`: `server.py PORT`.

Requests are served one by one: S3 decides a conditional PUT atomically, which moto's threads do not. `PUT /-/faults?…` has it
misbehave from then on: `refuse=N`, every Nth request is answered with 503 SlowDown; `late=SECONDS`, each waits so long;
`lost=N`, of the commits of Delta logs every Nth is done and answered with 503, as when the answer was lost; `forbid=1`, what
writes is answered with 403. `GET /-/pages` answers with the number of pages of listings so far.
"""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


def main() -> None:
    """Serve until killed."""
    moto, lock = DomainDispatcherApplication(create_backend_app), Lock()
    faults: dict[str, float] = {}
    requests, commits, pages = count(1), count(1), [0]

    def due(numbers: "count[int]", fault: str) -> bool:
        return fault in faults and next(numbers) % faults[fault] == 0

    def answer_with(start: Callable[..., Any], status: str, body: bytes) -> Iterable[bytes]:
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def slow_down(start: Callable[..., Any]) -> Iterable[bytes]:
        return answer_with(start, "503 Slow Down", _SLOW_DOWN)

    def serial(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/-/faults":
            faults.clear()
            faults.update({name: float(value) for name, value in parse_qsl(environ["QUERY_STRING"])})
            start("200 OK", [("Content-Length", "0")])
            return []
        pages[0] += environ["REQUEST_METHOD"] == "GET" and "list-type=2" in environ["QUERY_STRING"]
        if path == "/-/pages":
            return answer_with(start, "200 OK", str(pages[0]).encode())
        time.sleep(faults.get("late", 0))
        if "forbid" in faults and environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return answer_with(start, "403 Forbidden", _DENIED)
        if due(requests, "refuse"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return slow_down(start)
        lost = _is_commit(environ, path) and due(commits, "lost")
        with lock:
            answer = list(moto(environ, _unheard if lost else start))
        return slow_down(start) if lost else answer

    run_simple("127.0.0.1", int(sys.argv[1]), serial, threaded=True)


def _is_commit(environ: dict[str, Any], path: str) -> bool:
    return environ["REQUEST_METHOD"] == "PUT" and "/_delta_log/" in path and path.endswith(".json")


def _unheard(*_: Any) -> Callable[[bytes], None]:
    return lambda _: None


main()
