"""What all rings share: servers to test against, and the rules of a run."""

from hypothesis import settings

# How long an example takes is the machine's affair. Examples are drawn as before: by chance, or always the same where CI is set.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

pytest_plugins = [
    "tests.fix_artemis",
    "tests.fix_certificates",
    "tests.fix_proxy",
    "tests.fix_secure_kafka",
    "tests.fix_stack",
    "tests.fix_interconnect",
    "tests.fix_edge",
    "tests.fix_mariadb",
    "tests.fix_spark",
    "tests.fix_cluster",
    "tests.fix_verify",
    "tests.fix_order",
    "tests.fix_strict",
]
