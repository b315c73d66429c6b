"""The folder of jars by its former name, for the tests of containers."""

from headrace.java import jar_folder as folder

__all__ = ["folder"]
