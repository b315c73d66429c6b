"""When the certificates of a connection end, as a metric: Prometheus alerts days before a handshake fails.

Files are parsed again only when they changed, so a scrape costs a few `stat` calls. A file that cannot be read gives no time: the
part that uses it reports that by itself.
"""

from dataclasses import dataclass

from headrace.certificates import files
from headrace.configuration.tls import Certificates
from headrace.errors import ConfigurationError
from headrace.metrics.figure import worked_out


class Expiry:
    """The certificates of one connection. Read by the endpoint's threads and by the thread that cuts batches."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._known: tuple[object, float | None] = (None, None)

    def time(self) -> float | None:
        """Return when the first of authority and own certificate ends, in seconds since 1970; None without any."""
        stamp = files.stamp(self._certificates)
        known, ends = self._known
        if known == stamp:
            return ends
        try:
            ends = files.ends(self._certificates)
        except ConfigurationError:
            ends = None
        self._known = (stamp, ends)
        return ends


@dataclass(slots=True)
class ConnectionMetrics:
    """Metrics of one of a bridge's connections, with the label `connection`."""

    expiry: Expiry

    @property
    @worked_out(
        "certificate_expiry_time_seconds",
        "When the first certificate of the connection ends, in seconds since 1970; absent without any.",
    )
    def certificate_expiry(self) -> float | None:
        """Seconds since 1970."""
        return self.expiry.time()
