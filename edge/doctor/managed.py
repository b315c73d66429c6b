"""What fixes a finding on a server that a provider manages: nobody is a superuser there, and settings are set from outside.

The provider is known by what it puts into every server: roles of PostgreSQL, folders and versions of MariaDB and MySQL.
docs/cloud.md has whole recipes.
"""

import re
from typing import Any, NamedTuple

from headrace.findings import Finding

_SET = re.compile(r"alter system set (\w+) = ('[^']*'|[^; ]+);(.*)", re.DOTALL)
_SET_GLOBAL = re.compile(r"set global (\w+) = ('[^']*'|[^;, ]+)(.*)", re.DOTALL)
_REPLICATION = re.compile(r"Run as a superuser: alter role (\S+) replication;")
_LEVEL = "Run as a superuser: alter system set wal_level = 'logical'; then restart the server."


class Provider(NamedTuple):
    """Who manages a server, and how settings are set there."""

    name: str
    #: Where a setting is set: "in the parameter group".
    where: str
    #: What sets wal_level.
    level: str
    #: What lets a role replicate, with `{role}`.
    replication: str


AMAZON = Provider(
    "Amazon RDS or Aurora",
    "in the parameter group",
    "Set rds.logical_replication = 1 in the parameter group, and restart the instance.",
    "grant rds_replication to {role};",
)
GOOGLE = Provider(
    "Google Cloud SQL",
    "as a flag of the instance",
    "Set the flag cloudsql.logical_decoding = on; the instance restarts.",
    "alter user {role} with replication;  -- as a user with cloudsqlsuperuser",
)
AZURE = Provider(
    "Azure Database",
    "as a server parameter",
    "Set the server parameter wal_level = logical, and restart the server.",
    "alter role {role} with replication;  -- as a user with azure_pg_admin",
)
_BY_ROLE = {"rds_superuser": AMAZON, "cloudsqlsuperuser": GOOGLE, "azure_pg_admin": AZURE}


def postgres_provider(database: Any) -> Provider | None:
    """Return who manages a PostgreSQL server; None for nobody that is known."""
    roles = database.value("select array_agg(rolname::text) from pg_roles where rolname = any(%s)", [*_BY_ROLE]) or []
    return next((_BY_ROLE[role] for role in roles), None)


def mysql_provider(database: Any) -> Provider | None:
    """Return who manages a MariaDB or MySQL server; None for nobody that is known."""
    if (database.variable("basedir") or "").startswith("/rdsdbbin"):
        return AMAZON
    return GOOGLE if "-google" in database.version else None


def fitted(finding: Finding, provider: Provider | None) -> Finding:
    """Return a finding with what fixes it on such a server."""
    return finding if provider is None or not finding.fix else finding._replace(fix=fix(finding.fix, provider))


def fix(text: str, provider: Provider) -> str:
    """Return what fixes a finding there, in place of what does on a server of one's own."""
    if text == _LEVEL:
        return provider.level
    if role := _REPLICATION.fullmatch(text):
        return provider.replication.format(role=role[1])
    for pattern in (_SET, _SET_GLOBAL):
        if found := pattern.fullmatch(text):
            name, value, rest = found.groups()
            if name == "binlog_expire_logs_seconds" and provider is AMAZON:
                return f"call mysql.rds_set_configuration('binlog retention hours', {int(value) // 3600})"
            restart = ", and restart the instance" if "restart" in rest else ""
            return f"Set {name} = {value.strip(chr(39))} {provider.where}{restart}."
    return text.replace("-- as a superuser", "-- as the owner of the tables")
