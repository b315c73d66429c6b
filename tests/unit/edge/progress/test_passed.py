"""Which transactions are passed over: those of the present epoch alone."""

from edge.progress.passed import Passed, PassedTransactions


def test_names_of_another_epoch_are_other_transactions(tmp_path):
    """A server that was reset gives the same GTIDs again: nobody consented to give those up."""
    first = PassedTransactions(tmp_path)
    first.begin(1)
    first.stop_at("0-1-7")
    first.add(Passed("0-1-7", "ani@edge", 17))
    again = PassedTransactions(tmp_path)
    again.begin(1)
    assert (list(again.by_name), again.stopped) == (["0-1-7"], "")
    other = PassedTransactions(tmp_path)
    other.begin(2)
    assert not other.by_name
    assert not PassedTransactions(tmp_path).by_name
