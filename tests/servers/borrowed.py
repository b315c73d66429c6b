"""Tests of other rings, run once more at another server."""

from _pytest.fixtures import FixtureFunctionDefinition


def add_tests(to, module):
    """Add the tests of a module to a class, and those of its fixtures that the class does not have itself."""
    for name, member in vars(module).items():
        if hasattr(to, name):
            continue
        if isinstance(member, FixtureFunctionDefinition):
            # As it is, it would be a method.
            setattr(to, name, member._fixture_function_marker(staticmethod(member._get_wrapped_function())))
        elif name.startswith("test_"):
            setattr(to, name, staticmethod(member))
