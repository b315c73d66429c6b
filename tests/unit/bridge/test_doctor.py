"""What keeps records out of a partition: no leader, or too few replicas in sync."""

from types import SimpleNamespace

import pytest

from bridge.doctor import _cannot_be_written


def partition(number, leader, *isrs):
    return SimpleNamespace(id=number, leader=leader, isrs=list(isrs))


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([], ""),
        ([partition(0, 1, 1, 2), partition(1, 2, 1, 2, 3)], ""),
        (
            [partition(0, 1, 1), partition(1, 2, 1, 2)],
            "partitions [0] have fewer replicas in sync than min.insync.replicas=2",
        ),
        ([partition(0, -1, 3), partition(1, 2, 1, 2)], "partitions [0] have no leader"),
        (
            [partition(0, -1, 3), partition(1, 2, 2)],
            "partitions [0] have no leader, and partitions [1] have fewer replicas in sync than min.insync.replicas=2",
        ),
    ],
)
def test_partitions_that_cannot_be_written_are_named(partitions, said):
    assert _cannot_be_written(partitions, 2) == said + ": nothing can be written to them" * bool(said)
