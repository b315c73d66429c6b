"""An S3 server in memory, run by the Python of `.setup/object-store`: `server.py PORT`.

Requests are served one by one: S3 decides a conditional PUT atomically, which moto's threads do not.
"""

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main() -> None:
    """Serve until killed."""
    moto, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def serial(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(moto(environ, start))

    run_simple("127.0.0.1", int(sys.argv[1]), serial, threaded=True)


main()
