"""Health check: whether a server answers. `alive.py HOST PORT` is for a port, `alive.py URL` for a page with status 200."""

import socket
import sys
import urllib.request

if len(sys.argv) == 2:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:  # noqa: S310 - the image's own command names it.
        sys.exit(answer.status != 200)
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()
