"""Who writes to the demo's regions, in rounds, and how much they have written in all."""

from collections import Counter, defaultdict

from infra.local.demo.region import Region


class Written:
    """The writers of all regions, at the same pace."""

    def __init__(self, regions: list[Region], *, clients: int, rate: int) -> None:
        self._regions = regions
        self._clients, self._rate = clients, rate
        self._transactions: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def go_on(self, seconds: int) -> None:
        """Start a round of so many seconds; returns at once."""
        for region in self._regions:
            region.write(clients=self._clients, seconds=seconds, rate=self._rate)

    def wait(self) -> None:
        """Wait for the round to end."""
        for region in self._regions:
            transactions, seconds = region.transactions()
            self._transactions[region.name] += transactions
            self._seconds[region.name] += seconds

    def stop(self) -> None:
        """End the round, if one is running."""
        for region in self._regions:
            region.stop_writing()

    @property
    def reported(self) -> dict[str, tuple[int, float]]:
        """For each region: transactions committed, and how many a second while they wrote."""
        return {name: (count, count / self._seconds[name]) for name, count in self._transactions.items()}
