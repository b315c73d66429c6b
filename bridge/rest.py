"""How long a source's next transaction is put off after a commit, so that a broker at its limit gets fewer and larger ones.

A commit returns before Kafka has ended the transaction. One that begins meanwhile is put off by the client for 20 ms, so the next
one waits for `ENDING_SECONDS` at least. Measured with small transactions: 9 % are put off without, 2 % with it.
"""

ENDING_SECONDS = 0.004
#: After a transaction of fewer records than this, it waits for as long as the commit took, at most so long, in seconds: a broker
#: does about 600 small transactions a second, and one that is given more answers late. With fifty sources a rest by the quickest
#: of the last four commits costs four times the CPU. A source that fills its transactions has nothing to gather.
SMALL, LONGEST_SECONDS = 1000, 0.1


def rest(took: float, records: int) -> float:
    """Return the seconds from a commit's end to the next transaction at the earliest: it took so long, with so many records."""
    if records >= SMALL:
        return ENDING_SECONDS
    return min(LONGEST_SECONDS, max(ENDING_SECONDS, took))
