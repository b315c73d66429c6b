"""What keeps a source from being retired."""

from edge.commands.lifecycle import _open_copies
from edge.snapshot.plan import Plan
from edge.snapshot.store import SnapshotStore


def test_a_copy_that_has_not_ended_at_the_far_side_is_named_l34(tmp_path):
    store, plan = SnapshotStore(tmp_path, "jakarta/bank"), Plan(source="jakarta/bank")
    plan.add_all(("public.a", "public.b"), where=None, replace=False, now_ms=1)
    store.save(plan)
    assert _open_copies(store) == []

    plan.cancel(["public.b"], 2)
    plan.tables[1].marks_open = True
    store.save(plan)

    (found,) = _open_copies(store)
    assert found.startswith("the copy of public.b has not ended")
    # A damaged plan is a reason as well, which `force` overrides.
    (tmp_path / "snapshot.json").write_bytes(b"{")
    assert "snapshot.json" in _open_copies(store)[0]
