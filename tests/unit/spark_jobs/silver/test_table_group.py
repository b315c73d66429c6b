"""Groups of tables: every table is in one, and a group is named as a person writes it."""

import pytest

from headrace.errors import ConfigurationError
from spark_jobs.silver.tables_load import TableGroup


def test_a_table_is_in_one_group_alone():
    tables = [f"public.t{number}" for number in range(100)]
    for count in (1, 2, 7):
        groups = [[table for table in tables if TableGroup(n, count).has(table)] for n in range(1, count + 1)]
        assert sorted(table for group in groups for table in group) == sorted(tables)
        assert all(groups)
    assert TableGroup.parse("2/7") == TableGroup(2, 7)
    for text in ("0/2", "3/2", "2", "a/b", "-1/2", "1/2/3"):
        with pytest.raises(ConfigurationError, match="names no group of tables"):
            TableGroup.parse(text)
