"""A plan of faults can be repeated by its seed."""

from types import SimpleNamespace

from tests.end_to_end.faults import every, one_of_each


def struck():
    return SimpleNamespace(kill=lambda: None, cut=lambda: None)


def whole():
    regions = [
        SimpleNamespace(source=source, edge=struck(), wire=struck(), postgres=struck())
        for source in ("jakarta/bank", "london/bank")
    ]
    return SimpleNamespace(regions=regions, bridge=struck(), kafka=struck())


def planned(seed, plan=every):
    return [(fault.name, fault.after_changes) for fault in plan(whole(), seed)]


def test_same_seed_makes_the_same_plan():
    assert planned(7) == planned(7)
    assert planned(7) != planned(8)


def test_every_plan_has_a_dozen_faults_and_every_kind():
    for seed in range(20):
        names = [name for name, _ in planned(seed)]
        assert len(names) >= 12
        for kind in (
            "kill -9 the edge",
            "kill -9 the bridge",
            "kill -9 Kafka",
            "cut the wire",
            "refuse",
            "restart the database",
            "crash the database",
        ):
            assert any(kind in name for name in names)


def test_a_short_plan_has_each_kind_once_and_sooner_or_later_every_region():
    plans = [[name for name, _ in planned(seed, one_of_each)] for seed in range(20)]
    assert {len({name.partition(":")[0] for name in names}) for names in plans} == {7}
    assert {len(names) for names in plans} == {7}
    assert {name for names in plans for name in names} == {name for name, _ in planned(1)}
