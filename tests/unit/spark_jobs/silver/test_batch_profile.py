"""Partitions of a source: several are fine as long as one has all that is before the other (L39)."""

from spark_jobs.silver import batch_profile, source_order
from spark_jobs.silver.profiles import TableProfile, Truncate

suspects = source_order.find_suspects
J, L = "jakarta/bank", "london/bank"


def group(partition, first, final, *, source=J, table="public.t", new=True, **more):
    counts = {"changes": 2, "keys": 1, "schemas": 0, "truncates": [], "keyless": None}
    flags = {"deletes": False, "partial": False, "rekeyed": False, "rewrites": False}
    place = {"source": source, "table": table, "partition": partition, "new": new, "first": first, "final": final}
    return place | counts | flags | {"needed": final, "last": final, "last_ms": 1} | more


def test_l39_a_source_that_was_moved_has_what_it_wrote_first_in_its_former_partition():
    assert not suspects([group(0, "1", "4"), group(0, "2", "5", table="public.o"), group(3, "6", "9")], {})
    assert not suspects([group(0, "1", "4"), group(3, "2", "9", source=L)], {})


def test_l39_partitions_that_overlap_are_found_whatever_their_tables():
    assert suspects([group(0, "1", "4"), group(3, "3", "9", table="public.o")], {}) == {J}


def test_l39_changes_before_those_that_were_applied_are_found_and_never_skipped():
    applied = {J: {"0": "5", "3": "9"}}
    # what was applied may be read again
    assert not suspects([group(0, "1", "5", new=False), group(3, "6", "9", new=False)], applied)
    # of a source that was loaded by an earlier release nothing is known
    assert not suspects([group(0, "1", "5", new=False, source=L)], applied)
    for partition, final in ((0, "6"), (7, "2")):
        assert suspects([group(partition, "1", final, new=False)], applied) == {J}


def test_what_several_partitions_have_of_a_table_is_one():
    truncate = {"position": "7", "at": 3}
    joined = batch_profile._joined(
        [group(0, "1", "4", keyless="3"), group(3, "6", "9", deletes=True, truncates=[truncate], keyless="8")]
    )
    assert [(each["changes"], each["first"], each["final"], each["deletes"], each["keyless"]) for each in joined] == [
        (4, "1", "9", True, "3")
    ]
    assert joined[0]["truncates"] == [truncate]


def test_n5_a_profile_of_truncates_alone_is_known():
    fields = group(0, "1", "1", changes=1)
    profile = TableProfile(
        **{name: fields[name] for name in TableProfile.__dataclass_fields__}
        | {"truncates": (Truncate(position="1", source=J, at=1),)}
    )
    assert profile.only_truncates
