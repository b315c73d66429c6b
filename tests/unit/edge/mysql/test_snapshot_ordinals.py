"""SnapshotOrdinals of chunks at one place: none is used twice, whatever is lost."""

import pytest

from edge.mysql.snapshot_decoder import SnapshotOrdinals
from headrace.errors import NeedsOperator
from headrace.position import Position

# SnapshotOrdinals.


def test_no_session_uses_an_ordinal_that_one_before_it_took(tmp_path):
    first = SnapshotOrdinals(tmp_path)
    taken = [first.take(7, 10), first.take(7, 5)]
    second = SnapshotOrdinals(tmp_path)

    assert taken == [0, 10]
    assert second.take(7, 3) >= 15
    assert second.take(9, 3) == 0


def test_ordinals_begin_behind_what_was_sent_when_their_file_is_lost(tmp_path):
    ordinals = SnapshotOrdinals(tmp_path, Position(1, 7, 41), Position(1, 7, 99))

    assert ordinals.take(7, 1) == 100


def test_ordinals_that_cannot_be_known_are_an_operators_matter(tmp_path):
    (tmp_path / "snapshot-place.json").write_text("{")
    with pytest.raises(NeedsOperator, match="damaged"):
        SnapshotOrdinals(tmp_path)
    (tmp_path / "snapshot-place.json").write_text(f'{{"place":7,"free":{(1 << 32) - 1}}}')
    with pytest.raises(NeedsOperator, match="more rows were copied"):
        SnapshotOrdinals(tmp_path).take(7, 2)
