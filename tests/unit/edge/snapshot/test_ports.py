"""The window's changes of a table without a key."""

from edge.snapshot import ports
from edge.snapshot.ports import DedupWindow


def test_q3_changes_are_kept_while_it_is_not_known_that_the_moment_has_them_and_no_more_than_fit(monkeypatch):
    monkeypatch.setattr(ports, "_MOST_KEPT", 10)
    window = DedupWindow()
    window.open()
    window.keep(1, b"not yet wanted", 4)
    window.keeps_changes = True
    window.keep(1, b"had", 4)
    window.keep(3, b"lacking", 4)
    window.lacks = lambda transaction: transaction > 2
    window.keep(2, b"had too", 4)
    # one that does not fit makes room by what the moment is known to have
    window.keep(4, b"lacking too", 4)
    assert [(each, change) for each, change, _ in window.kept] == [(3, b"lacking"), (4, b"lacking too")]
    assert not window.altered
    # and where that is not enough, another moment is chosen
    window.keep(5, b"too many", 4)
    assert (window.kept, window.altered) == ([], True)
    window.open()
    assert (window.kept, window.lacks, window.altered) == ([], None, False)
