"""Which tables and columns a verification may read: those that leave the region as they are, by the edge's policy.

What the policy keeps back, or changes, is not shown to who asks, not even as a hash. The lake has it otherwise, or not at all, so
it could not be equal. Called by handlers.py.
"""

from collections.abc import Callable
from dataclasses import replace

from edge.records.column_policy import Policy
from headrace.configuration.edge import EdgeFile
from headrace.verify.engine import SourceTable


def of_policy(config: EdgeFile) -> Callable[[list[SourceTable]], list[SourceTable]]:
    """Return what takes out of tables what does not leave; raises ConfigurationError for a policy without its key."""

    def leaving(tables: list[SourceTable]) -> list[SourceTable]:
        policy = Policy(config.policy)
        return [_leaving(policy, table) for table in tables if _admitted(policy, table)]

    return leaving


def _admitted(policy: Policy, table: SourceTable) -> bool:
    # Rows of a partition may leave under the name of the table that it is a partition of.
    return policy.admits(table.schema, table.name) and not any(map(policy.excludes_name, table.partition_of))


def _leaving(policy: Policy, table: SourceTable) -> SourceTable:
    names = list(table.columns)
    found = policy.treatments(table.schema, table.name, names, key=())
    treated = {name: each.action for name, each in zip(names, found, strict=True) if each is not None}
    treated |= {
        name: f"as in {above}"
        for above in sorted(table.partition_of)
        for name in names
        if policy.treats_name(above, [name])
    }
    columns = {name: kind for name, kind in table.columns.items() if name not in treated}
    return replace(table, columns=columns, treated=treated)
