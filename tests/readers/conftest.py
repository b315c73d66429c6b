"""The lakes of tests/integration: of the readers without a JVM, and of the example of sales."""

from tests.integration.examples.test_sales_example import sales
from tests.integration.lake.test_lake_reader import read_lake

__all__ = ["read_lake", "sales"]
