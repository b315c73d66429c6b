"""What keeps a source from being retired."""

from edge.retire import _open_copies
from edge.snapshot.plan import Plan


def test_a_copy_that_has_not_ended_at_the_far_side_is_named_l34():
    plan = Plan(source="jakarta/bank")
    for name in ("public.a", "public.b"):
        plan.add(name, where=None, replace=False, now_ms=1)
    assert _open_copies(plan) == []

    plan.cancel(["public.b"], 2)
    plan.tables[1].marks_open = True

    (found,) = _open_copies(plan)
    assert found.startswith("the copy of public.b has not ended")
