"""What every AMQP peer of a test is made of: Proton's loop as edges and bridges run it, in a thread, which takes commands.

The one module of the tests that imports Proton's handlers.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from proton.handlers import MessagingHandler

from headrace.amqp.transport import Loop


class Peer(MessagingHandler):
    """A peer that does nothing yet; a test's peer sets itself up, and then calls `start`."""

    def __init__(self, name: str = "test", **options: Any) -> None:
        super().__init__(**options)
        self.loop = Loop(self, name)
        self._commands: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()

    def do(self, command: Callable[[], None]) -> None:
        """Have a command done in the peer's thread, unless it has ended."""
        self._commands.append(command)
        self.loop.wake()

    def join(self) -> None:
        """Wait for the end of the loop, which some command or event brings about."""
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self} does not end"

    def on_begin(self) -> None:
        self.on_start(None)

    def on_wake(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def ended(self) -> None:
        """Called in the peer's thread at its end."""

    def _run(self) -> None:
        try:
            self.loop.run()
        finally:
            self.loop.close()
            self.ended()


class Listener(Peer):
    """Listens on a port of this machine."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tls: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self._acceptor = self.loop.listen(host, port)
        if tls is not None:
            self._acceptor.set_ssl_domain(tls)
        self.port = self._acceptor.port

    def close(self) -> None:
        """Drop everything, and listen no more."""
        self.do(self.stop)
        self.join()

    def stop(self) -> None:
        """End; in the peer's thread."""
        self._acceptor.close()
        self.loop.stop()
