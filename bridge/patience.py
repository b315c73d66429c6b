"""A bound on a call that promises one and does not always keep it.

librdkafka's calls that end a transaction can wait for ever, whatever their timeout, when the broker dies while they run. The
call runs in a thread of its own; when time is up the thread is left behind with all that it holds, and whatever it
returns later is nobody's. Called by the committer.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headrace.errors import NotConnected

T = TypeVar("T")


def within(seconds: float, doing: str, call: Callable[..., T], *arguments: object) -> T:
    """Return what the call returns, or raise what it raises; raise NotConnected when it takes longer than `seconds`."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call(*arguments))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for.
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name=doing).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():
            raise
        raise NotConnected(f"Kafka: no answer within {seconds:.0f} s: {doing}") from None
