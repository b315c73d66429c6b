"""`headrace edge doctor` and a MariaDB server: what it finds, and with which grants."""

import json
import os

from edge.mysql import coverage
from edge.mysql.connection import Database
from edge.mysql.coverage import described_columns


def test_doctor_sees_as_much_with_the_documented_grants_as_an_administrator(maria_edges, own_maria, interconnect):
    """The catalog's tables of constraints are empty for a user that may only SELECT (T6)."""
    own_maria.execute(
        "create table child (id int primary key, t int, foreign key (t) references t (id) on delete cascade)"
    )
    own_maria.execute("create table plain (id int primary key, t int, foreign key (t) references t (id))")
    own_maria.execute("create table by_index (a int not null unique, b timestamp default now() on update now())")
    own_maria.execute("create table keyless (a int, unique (a))")
    own_maria.execute("create sequence numbers")
    own_maria.execute("create user captor identified by 'secret'")
    own_maria.execute("grant replication slave, replication master admin, binlog monitor, select on *.* to captor")
    edge = maria_edges(own_maria, interconnect.url)
    path = edge.folder / "edge.toml"
    path.write_text(path.read_text().replace('user = "root"', 'user = "captor"\npassword = "env:CAPTOR"'))

    result = json.loads(edge.command("doctor", "--json", env=os.environ | {"CAPTOR": "secret"}).stdout)

    tables = [finding["text"] for finding in result if finding["check"] == "tables"]
    assert tables == [
        "5 are captured",
        f"1 have no key: their records have none, and a copy is one long statement: {own_maria.name}.keyless",
    ]
    (keys,) = [finding for finding in result if finding["check"] == "foreign keys"]
    assert keys["level"] == "warning"
    assert keys["text"].endswith(f": {own_maria.name}.child")
    own_maria.execute("drop user captor")


def test_doctor_finds_a_healthy_server_well_and_names_what_mends_an_ill_one(maria_edges, own_maria, interconnect):
    rules = f'[[policy.columns]]\ncolumns = ["{own_maria.name}.*.EMAIL", "{own_maria.name}.T.id"]\naction = "mask"\n'
    edge = maria_edges(own_maria, interconnect.url, rest=rules)
    edge.init()
    well = json.loads(edge.command("doctor", "--json").stdout)
    own_maria.execute("set global binlog_row_metadata = 'NO_LOG'")
    own_maria.execute("create table odd (a text character set swe7) engine = Aria")
    own_maria.execute(
        "create table numbered (a int, s bigint unsigned generated always as row start, e bigint unsigned generated always as "
        "row end, period for system_time (s, e)) with system versioning"
    )
    own_maria.execute(
        "create table child (id int primary key, t int, foreign key (t) references t (id) on delete cascade)"
    )
    done = edge.command("doctor", "--json")
    ill = json.loads(done.stdout)

    about = {"connection", "TLS", "binlog_row_metadata", "server_id", "checkpoint", "tables", "foreign keys"}
    assert {finding["level"] for finding in well if finding["check"] in about} == {"ok"}
    said = {(finding["check"], finding["level"]): finding for finding in ill}
    assert said["binlog_row_metadata", "wrong"]["fix"] == "set global binlog_row_metadata = 'FULL'"
    assert "convert to character set utf8mb4" in said["character set", "wrong"]["fix"]
    assert f": {own_maria.name}.numbered" in said["versions", "wrong"]["text"]
    assert f"{own_maria.name}.odd" in said["tables", "warning"]["text"]
    assert f": {own_maria.name}.child" in said["foreign keys", "warning"]["text"]
    # S10, S11: rules hold in any case; one that matches nothing, and a table that one cannot apply to, are named.
    assert f"{own_maria.name}.t is left out" in said["policy", "wrong"]["text"]
    assert said["policy", "warning"]["text"].endswith(f": {own_maria.name}.*.EMAIL")
    assert done.returncode != 0


def test_the_columns_of_all_tables_are_read_without_a_join(maria_edge, maria):
    """With 50,000 tables `doctor` lost its connection: the server compared each column with each table."""
    maria.execute("create view v as select id from t")
    names = maria_edge.config.source.mariadb
    with Database(names, "jakarta/bank") as database:
        described = {table.name: (table.columns, table.key) for table in described_columns(database, names)}
        for statement in (coverage._COLUMNS, coverage._STORED):
            assert len(database.rows(f"explain {statement}")) == 1
    assert described == {"t": (["id", "note"], ["id"])}
