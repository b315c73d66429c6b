"""A plan of faults can be repeated by its seed."""

from types import SimpleNamespace

from tests.end_to_end.faults import plan


def struck():
    return SimpleNamespace(kill=lambda: None, cut=lambda: None)


def whole():
    regions = [
        SimpleNamespace(source=source, edge=struck(), wire=struck(), postgres=struck())
        for source in ("jakarta/bank", "london/bank")
    ]
    return SimpleNamespace(regions=regions, bridge=struck(), kafka=struck())


def told(seed):
    return [(fault.name, fault.after_changes) for fault in plan(whole(), seed)]


def test_same_seed_makes_the_same_plan():
    assert told(7) == told(7)
    assert told(7) != told(8)


def test_every_plan_has_a_dozen_faults_and_every_kind():
    for seed in range(20):
        names = [name for name, _ in told(seed)]
        assert len(names) >= 12
        for kind in (
            "the edge",
            "the bridge",
            "Kafka",
            "cut the wire",
            "refuse",
            "restart the database",
            "crash the database",
        ):
            assert any(kind in name for name in names)
