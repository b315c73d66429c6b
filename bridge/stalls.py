"""Sources that make no progress although something waits to be committed: each is reported once, and shown until it moves."""

import logging
import time
from collections.abc import Callable, Mapping

from bridge.model.withheld import Withheld
from bridge.source.state import SourceState

_log = logging.getLogger(__name__)

#: Seconds after which a source that does not move is reported.
STALLED_SECONDS = 20.0


class Stalls:
    """Looks at all sources now and then."""

    def __init__(
        self, states: Callable[[], Mapping[str, SourceState]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._states = states
        self._clock = clock
        # The position of each source, what of it is withheld, and since when it has been there with something waiting.
        self._since: dict[str, tuple[str, Withheld | None, float]] = {}

    def look(self) -> None:
        """Note which sources are stalled now."""
        now = self._clock()
        for source, state in self._states().items():
            figures = state.figures
            # One whose position cannot be read gives no credit, so nothing comes from its edge.
            is_waiting = figures.has_unsent or (state.session is None and figures.state == "starting")
            if state.token is None or not is_waiting:
                self._since.pop(source, None)
                figures.stalled_seconds = None
                continue
            position, withheld, since = self._since.get(source, ("", None, now))
            # A table that is released moves, and the position waits for it.
            known = session.withheld if (session := state.session) is not None else withheld
            if (position, withheld) != (figures.position, known) or source not in self._since:
                self._since[source] = (figures.position, known, now)
                figures.stalled_seconds = None
            elif now - since >= STALLED_SECONDS:
                if figures.stalled_seconds is None:
                    _log.warning(
                        "%s: assigned to this bridge, and nothing was committed for %.0f s although something waits: %s, %s",
                        source,
                        now - since,
                        figures.state,
                        figures.reason or "no reason known",
                    )
                figures.stalled_seconds = now - since
