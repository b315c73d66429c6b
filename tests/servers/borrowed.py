"""Tests of other rings, run once more at another server."""

from _pytest.fixtures import FixtureFunctionDefinition


def add_tests(to, module):
    """Add the tests of a module to a class, and those of its fixtures that the class does not have itself."""
    for name, member in vars(module).items():
        is_test = name.startswith("test_")
        if (is_test or isinstance(member, FixtureFunctionDefinition)) and not hasattr(to, name):
            setattr(to, name, staticmethod(member) if is_test else member)
