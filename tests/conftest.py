"""What all rings share: servers to test against, and the rules of a run."""

pytest_plugins = [
    "tests.fix_certificates",
    "tests.fix_proxy",
    "tests.fix_stack",
    "tests.fix_interconnect",
    "tests.fix_edge",
    "tests.fix_spark",
    "tests.fix_strict",
]
