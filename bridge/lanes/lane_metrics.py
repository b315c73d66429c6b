"""Metrics of each lane: a transaction is of many sources, so its size and cost are a lane's and no source's."""

from dataclasses import dataclass

from headrace.metrics.figure import Seconds, counter, histogram


@dataclass(slots=True)
class LaneMetrics:
    """Counts since the bridge started; written by the lane's thread alone."""

    transactions: int = counter("transactions_total", "Transactions committed.")
    aborted: int = counter("aborted_transactions_total", "Transactions aborted, or whose outcome was not known.")
    records: int = counter("records_total", "Records committed.")
    sources: int = counter("sources_total", "Sources in committed transactions, counted in each.")
    partitions: int = counter("partitions_total", "Partitions with records in committed transactions, counted in each.")
    commit_seconds: Seconds = histogram("commit_seconds", "How long Kafka took to commit a transaction.")  # noqa: RUF009

    def commit(self, records: int, sources: int, partitions: int, seconds: float) -> None:
        """Note a committed transaction."""
        self.transactions += 1
        self.records += records
        self.sources += sources
        self.partitions += partitions
        self.commit_seconds.add(seconds)
