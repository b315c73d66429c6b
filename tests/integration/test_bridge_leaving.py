"""A bridge that ends while its group assigns to it what another one has just left."""

from bridge.group.client import KafkaMember
from bridge.kafka.client import admin
from headrace.configuration.kafka import KafkaConnection
from tests.waiting import eventually

pytest_plugins = ["tests.fix_bridge"]


def test_a_bridge_that_is_assigned_a_source_while_it_ends_takes_nothing_on(kafka, topic):
    # Given two members of a group, one of which has the only partition.
    name = topic()
    connection = KafkaConnection(bootstrap=kafka.bootstrap)
    group, assigned = f"leaving.{name}", {"first": 0, "second": 0}

    def joined(instance):
        made = KafkaMember(connection, admin(connection), group, instance, 6.0)

        def on_assigned(partitions):
            # What the bridge does in this callback; a client that is closed refuses it.
            made.metadata()
            assigned[instance] += len(partitions)

        made.join({name}, on_assigned, lambda _: None, lambda _: None)
        return made

    first, second = joined("first"), joined("second")

    def both():
        first.poll(0.05)
        second.poll(0.05)
        return sum(assigned.values()) == 1 and first.metadata() and second.metadata()

    eventually(both, saying="both are members")
    owner, other = (first, second) if assigned["first"] else (second, first)

    # When the owner leaves, and the other is assigned the partition, and ends before it has heard of that.
    owner.close(leave=True)
    eventually(lambda: other.unassigned({(name, 0)}) == set(), saying="the group has assigned it to the other one")
    other.close(leave=False)

    # Then it ends without an error, and has taken nothing on.
    assert sum(assigned.values()) == 1
