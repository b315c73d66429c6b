"""`headrace lake serve` for clients that others made: Hive's beeline, and PyHive with SQLAlchemy."""

import json
import subprocess
from pathlib import Path

import pyspark
import pytest

from spark_jobs.silver import table_task
from spark_jobs.state import delta_log
from tests.lake.logged import LoggedLake
from tests.lake.served import TOKEN, Server

PYTHON = Path(__file__).parents[2] / ".setup" / "readers" / "bin" / "python"
#: PyHive has no TLS of its own with the binary transport.
PROGRAM = """
import json, ssl, sys, sqlalchemy, thrift_sasl
from pyhive import hive
from thrift.transport.TSSLSocket import TSSLSocket

def connect():
    socket = TSSLSocket("localhost", int(port), cert_reqs=ssl.CERT_REQUIRED, ca_certs=authority)
    plain = lambda: hive.get_installed_sasl(host="localhost", sasl_auth="PLAIN", username="alice", password=token)
    transport = thrift_sasl.TSaslClientTransport(plain, "PLAIN", socket)
    return hive.connect(thrift_transport=transport, username="alice", database="silver")

port, authority, token, write = sys.stdin.read().splitlines()
engine = sqlalchemy.create_engine("hive://", creator=connect)
answer = {"refused": None}
table = sqlalchemy.Table("accounts", sqlalchemy.MetaData(), autoload_with=engine)
with engine.connect() as connection:
    query = sqlalchemy.select(table.c.id, table.c.name).where(table.c.id > 1).order_by(table.c.id)
    answer["rows"] = [list(row) for row in connection.execute(query)]
    try:
        connection.execute(sqlalchemy.text(write))
    except sqlalchemy.exc.DatabaseError as error:
        answer["refused"] = str(error)
print(json.dumps(answer))
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """Return a lake of one table."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("served") / "lake")
    feed = lake.feeds[0]
    feed.commit(feed.schema(), *(feed.insert(id=number, name=f"n{number}", balance="1.00") for number in (1, 2, 3)))
    lake.load()
    return lake


@pytest.fixture(scope="module")
def server(lake):
    """Yield a server of the lake."""
    server = Server(lake._path)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def write(spark, lake):
    """Yield a statement that must change nothing; fail when it did."""
    path = table_task.path(lake.file, "bank", "public.accounts")
    version = delta_log.version(spark, path)
    yield "DELETE FROM silver.accounts WHERE id = 2"
    assert delta_log.version(spark, path) == version


def test_beeline_reads_and_does_not_write(server, write):
    password = server.folder / "token"
    password.write_text(TOKEN)
    jars = Path(pyspark.__file__).parent / "jars" / "*"

    def ask(text):
        command = ["java", "-cp", str(jars), "org.apache.hive.beeline.BeeLine", "-u", server.jdbc_url, "-n", "alice"]
        command += ["-w", str(password), "--outputformat=csv2", "--silent=true", "-e", text]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    read = ask("SELECT id, name FROM accounts WHERE id > 1 ORDER BY id")
    # behind its prompt
    assert (read.returncode, read.stdout.split()[-3:]) == (0, ["id,name", "2,n2", "3,n3"]), read.stderr
    written = ask(write)
    assert written.returncode != 0
    assert "refused" in written.stderr


def test_pyhive_reads_and_does_not_write(server, write):
    given = "\n".join([str(server.thrift_port), str(server.authority), TOKEN, write])
    done = subprocess.run([PYTHON, "-c", PROGRAM], input=given, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["rows"] == [[2, "n2"], [3, "n3"]]
    assert "refused" in answer["refused"]
