"""Where a running part answers questions about itself: the same table in the edge's file and in the bridge's."""

from typing import Annotated

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.names import LISTEN_ADDRESS


class Metrics(Section, frozen=True, kw_only=True):
    """The part's own endpoint: metrics, health and status, over HTTP; no secret and no row can be had from it.

    Off unless asked for: two edges on one machine would want the same port.
    """

    #: `host:port`; port 0 takes a free one, which the log names.
    listen: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] | None = None
