"""What all rings share: servers to test against, and the rules of a run."""

from hypothesis import settings

# How long an example takes is the machine's affair. Examples are drawn as before: by chance, or always the same where CI is set.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

pytest_plugins = [
    "tests.servers.fix_artemis",
    "tests.servers.fix_certificates",
    "tests.servers.fix_proxy",
    "tests.servers.fix_secure_kafka",
    "tests.servers.fix_stack",
    "tests.amqp.fix_interconnect",
    "tests.edge.fix_edge",
    "tests.servers.fix_mariadb",
    "tests.lake.fix_spark",
    "tests.servers.fix_cluster",
    "tests.lake.fix_verify",
    "tests.rules.fix_order",
    "tests.rules.fix_rotation",
    "tests.rules.fix_seed",
    "tests.rules.fix_shown",
    "tests.rules.fix_strict",
]
