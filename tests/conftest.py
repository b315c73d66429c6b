"""What all rings share: servers to test against, and the rules of a run."""

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
    "tests.fix_verify",
    "tests.fix_order",
    "tests.fix_strict",
]
