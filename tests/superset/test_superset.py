"""`headrace lake serve` for Superset, by its own API of SQL Lab: docs/bi.md has the same settings."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from spark_jobs.silver import table_task
from spark_jobs.state import delta_log
from tests.lake.logged import LoggedLake
from tests.lake.served import TOKEN, Server

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".setup" / "superset" / "bin" / "python"
#: Superset with a database of its own, a user and the lake's database, as an operator makes them in its pages; then SQL Lab.
PROGRAM = """
import json, sys
from superset.app import create_app

uri, *statements = json.load(sys.stdin)
app = create_app()
with app.app_context():
    from flask_appbuilder import Model
    from superset.extensions import appbuilder, db, security_manager
    from superset.models.core import Database

    Model.metadata.create_all(db.engine)
    appbuilder.add_permissions(update_perms=True)
    security_manager.sync_role_definitions()
    admin = security_manager.find_role("Admin")
    security_manager.add_user("admin", "a", "b", "admin@example.com", admin, password="password")
    lake = Database(database_name="lake", expose_in_sqllab=True, allow_dml=True)
    lake.set_sqlalchemy_uri(uri)
    db.session.add(lake)
    db.session.commit()
    number = lake.id

client = app.test_client()
user = {"username": "admin", "password": "password", "provider": "db"}
token = client.post("/api/v1/security/login", json=user).json["access_token"]
answers = []
for statement in statements:
    query = {"database_id": number, "schema": "silver", "sql": statement}
    answers.append(client.post("/api/v1/sqllab/execute/", json=query, headers={"Authorization": f"Bearer {token}"}).json)
print(json.dumps(answers))
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def settings():
    """Return what docs/bi.md adds to Superset's own file of settings."""
    page = (ROOT / "docs" / "bi.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page[page.index("## Superset") :], re.DOTALL)[:1]
    return block


def test_sql_lab_asks_by_tls_and_does_not_write(spark, settings, tmp_path):
    lake = LoggedLake(spark, tmp_path / "lake")
    feed = lake.feeds[0]
    feed.commit(feed.schema(), *(feed.insert(id=number, name=f"n{number}", balance="1.50") for number in (1, 2, 3)))
    lake.load()
    path = table_task.path(lake.file, "bank", "public.accounts")
    version = delta_log.version(spark, path)
    server = Server(lake._path)
    file = tmp_path / "superset_config.py"
    own = f'SECRET_KEY = "{"secret of the test" * 3}"\nSQLALCHEMY_DATABASE_URI = "sqlite:///{tmp_path}/superset.db"\n'
    file.write_text(own + "WTF_CSRF_ENABLED = TALISMAN_ENABLED = False\n" + settings)
    environment = os.environ | {
        "SUPERSET_CONFIG_PATH": str(file),
        "SUPERSET_HOME": str(tmp_path / "home"),
        "HEADRACE_AUTHORITY": str(server.authority),
    }
    uri = f"hive://alice:{TOKEN}@localhost:{server.thrift_port}/silver"
    statements = [
        "SELECT id, name, balance FROM accounts WHERE id > 1 ORDER BY id",
        "SELECT max(finished_at) > TIMESTAMP'2026-01-01' AS fresh FROM lake.published",
        "DELETE FROM silver.accounts WHERE id = 2",
    ]
    try:
        server.start()
        ended = subprocess.run(
            [PYTHON, "-c", PROGRAM], input=json.dumps([uri, *statements]), env=environment, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        server.stop()
    assert ended.returncode == 0, ended.stderr[-4000:]
    read, fresh, written = json.loads(ended.stdout.splitlines()[-1])
    assert (read["status"], fresh["status"]) == ("success", "success")
    assert [(row["id"], row["name"], str(row["balance"])) for row in read["data"]] == [
        (2, "n2", "1.5"),
        (3, "n3", "1.5"),
    ]
    assert fresh["data"] == [{"fresh": True}]
    assert "refused" in str(written["errors"])
    assert delta_log.version(spark, path) == version
    # nor does a query end, and its limits with it, where Superset asks for its logs, which are not kept
    audit = server.audit.read_text()
    assert '"user":"alice"' in audit
    assert '"state":"failed"' not in audit
