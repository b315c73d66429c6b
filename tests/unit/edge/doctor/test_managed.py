"""What fixes a finding on servers that a provider manages; the providers' own servers cannot be had here."""

import pytest

from edge.doctor.examine import AMAZON, AZURE, GOOGLE, fit_to_provider, fix, mysql_provider, postgres_provider
from headrace.findings import Finding

LEVEL = "Run as a superuser: alter system set wal_level = 'logical'; then restart the server."


class Server:
    """A server as the provider is known by."""

    def __init__(self, roles=(), basedir="/usr", version="8.0.36"):
        self.roles, self.basedir, self.version = roles, basedir, version

    def value(self, _query, names):
        return [name for name in names if name in self.roles] or None

    def variable(self, _name):
        return self.basedir


@pytest.mark.parametrize(
    ("text", "provider", "fixed"),
    [
        (LEVEL, AMAZON, "Set rds.logical_replication = 1 in the parameter group, and restart the instance."),
        (LEVEL, AZURE, "Set the server parameter wal_level = logical, and restart the server."),
        (
            "alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();  -- what the disk can spare",
            GOOGLE,
            "Set max_slot_wal_keep_size = 50GB as a flag of the instance.",
        ),
        (
            "alter system set max_replication_slots = 20;  -- then restart the server",
            AMAZON,
            "Set max_replication_slots = 20 in the parameter group, and restart the instance.",
        ),
        ('Run as a superuser: alter role "edge" replication;', AMAZON, 'grant rds_replication to "edge";'),
        ("set global binlog_row_image = 'FULL'", AMAZON, "Set binlog_row_image = FULL in the parameter group."),
        (
            "set global binlog_expire_logs_seconds = 691200",
            AMAZON,
            "call mysql.rds_set_configuration('binlog retention hours', 192)",
        ),
        ("create publication p;  -- as a superuser", AZURE, "create publication p;  -- as the owner of the tables"),
        ("Let both follow a time server.", AMAZON, "Let both follow a time server."),
    ],
)  # fmt: skip
def test_a_fix_fits_the_provider(text, provider, fixed):
    assert fix(text, provider) == fixed


def test_the_provider_is_known_by_what_it_puts_into_every_server():
    assert postgres_provider(Server()) is None
    assert postgres_provider(Server(["rds_superuser"])) is AMAZON
    assert postgres_provider(Server(["cloudsqlsuperuser"])) is GOOGLE
    assert postgres_provider(Server(["azure_pg_admin"])) is AZURE
    assert mysql_provider(Server()) is None
    assert mysql_provider(Server(basedir="/rdsdbbin/mysql-8.0.36.R1/")) is AMAZON
    assert mysql_provider(Server(version="8.0.31-google")) is GOOGLE
    own = Finding("wal_level", "wrong", "it is replica", LEVEL)
    assert fit_to_provider(own, None) is own
    assert fit_to_provider(own, AMAZON).fix.startswith("Set rds.logical_replication")
