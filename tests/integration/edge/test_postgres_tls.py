"""The database over TLS: its certificate checked by name, and the edge known by its own."""

import os
import shutil

import psycopg
import pytest

from headrace.certificates.command import Authority
from headrace.configuration.databases import PostgresqlConnection
from tests.servers.fix_stack import reload


@pytest.fixture
def ours(certificates):
    return certificates / "ours"


@pytest.fixture
def server(private_postgres, ours):
    """Return a cluster that shows the certificate of `localhost`, and knows the role `jakarta/bank` by its certificate alone."""
    made = private_postgres(release=17)
    owner = made.data.stat()
    names = {"bridge.pem": "server.crt", "bridge.key": "server.key", "authority.pem": "root.crt"}
    for name, its in names.items():
        shutil.copy(ours / name, made.data / its)
        os.chown(made.data / its, owner.st_uid, owner.st_gid)
        (made.data / its).chmod(0o600)
    rules = made.data / "pg_hba.conf"
    rules.write_text('hostssl all "jakarta/bank" 127.0.0.1/32 cert\n' + rules.read_text())
    made.psql('CREATE ROLE "jakarta/bank" LOGIN')
    made.psql("ALTER SYSTEM SET ssl_ca_file = 'root.crt'")
    made.psql("ALTER SYSTEM SET ssl = on")
    reload(made)
    assert made.psql("SHOW ssl") == "on"
    return made


@pytest.fixture
def connect(server, ours):
    def connect(**changes):
        known = {
            "host": "localhost",
            "port": server.port,
            "database": "postgres",
            "user": "jakarta/bank",
            "sslmode": "verify-full",
            "sslrootcert": ours / "authority.pem",
            "sslcert": ours / "jakarta-bank.pem",
            "sslkey": ours / "jakarta-bank.key",
        }
        with psycopg.connect(**PostgresqlConnection(**(known | changes)).parameters()) as connection:
            asked = "SELECT ssl, current_user FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            return connection.execute(asked).fetchone()

    return connect


def test_both_sides_are_known_by_their_certificates(connect, ours, tmp_path):
    assert connect() == (True, "jakarta/bank")
    with pytest.raises(psycopg.OperationalError, match="certificate authentication failed"):
        connect(sslcert=ours / "london-bank.pem", sslkey=ours / "london-bank.key")
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        connect(sslrootcert=Authority(tmp_path / "theirs").certificate_file)
    with pytest.raises(psycopg.OperationalError, match="does not match host name"):
        connect(host="127.0.0.1")
