"""The lake of tests/integration/lake/test_lake_reader.py."""

from tests.integration.lake.test_lake_reader import read_lake

__all__ = ["read_lake"]
