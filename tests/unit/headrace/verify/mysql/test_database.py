"""How a MySQL server is read: its place between two commits without a lock, its keys, and the tables that are captured."""

import pytest

from headrace.configuration.edge import Mysql
from headrace.configuration.lake import VerifiedMysql
from headrace.errors import NeedsOperator, Retryable
from headrace.verify.mysql import database as module
from headrace.verify.mysql.database import MysqlDatabase

SOURCE = "singapore/pay"


class Server:
    """A connection to a server that answers statements by their beginnings, and notes them."""

    def __init__(self, version="9.7.4", **answers):
        self.version, self.answers, self.asked = version, answers, []

    def get_server_info(self):
        return self.version

    def escape(self, text):
        return f"'{text}'"


class Database(MysqlDatabase):
    def query(self, statement, about):
        server = self._connection
        server.asked.append(statement)
        for beginning, answers in server.answers.items():
            if statement.replace(" ", "_").upper().startswith(beginning.upper()):
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if isinstance(answer, int):
                    raise module.side.reading(self._source, self._address, about, answer)
                return answer
        return []


def begun(server):
    database = Database(SOURCE, VerifiedMysql(host="h", user="u"), server)
    database._begin(placed=True)
    return database.place


def end(offset):
    return [("binlog.000007", offset, "", "", "x:1-9")]


ON = [[("gtid_mode", "ON")]]


def test_a_snapshot_is_between_two_commits_and_nobody_is_blocked():
    """A managed server grants nobody RELOAD: a transaction that is committing owns its GTID until it is visible."""
    server = Server(
        **{
            "SHOW_GLOBAL_VARIABLES": ON,
            # Something is committing; then something commits meanwhile; then neither.
            "SELECT_@@GLOBAL.GTID_OWNED": [[("x:9#4",)], [("",)], [("",)]],
            "SHOW_BINARY_LOG_STATUS": [end(100), end(200), end(300), end(400), end(400)],
        }
    )

    assert begun(server).text == "binlog.000007:400"
    assert [each.split()[0] for each in server.asked[-6:]] == ["SHOW", "ROLLBACK", "SHOW", "SELECT", "START", "SHOW"]
    assert not any("LOCK" in each for each in server.asked)


@pytest.mark.parametrize("mode", ["ON", "OFF"])
def test_a_server_without_such_a_moment_or_without_gtids_is_locked_for_a_moment(monkeypatch, mode):
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.01)
    server = Server(
        **{
            "SHOW_GLOBAL_VARIABLES": [[("gtid_mode", mode)]],
            "SELECT_@@GLOBAL.GTID_OWNED": [[("x:9#4",)]],
            "SHOW_BINARY_LOG_STATUS": [end(500)],
        }
    )
    assert begun(server).text == "binlog.000007:500"
    assert "FLUSH TABLES WITH READ LOCK" in server.asked

    server.answers["FLUSH"] = [1227]
    with pytest.raises(Retryable, match="no moment between two commits, and user 'u' may not lock it") as caught:
        begun(server)
    assert "--at-rest" in caught.value.hint


def test_a_server_without_a_log_has_no_place():
    with pytest.raises(NeedsOperator, match="writes no binlog"):
        begun(Server(SHOW_GLOBAL_VARIABLES=ON))


def test_a_unique_index_over_an_expression_is_no_key():
    """N4: such a part has no column's name."""
    columns = [("pay", "t", "a", "int", "int", 10, 0, "", 0), ("pay", "t", "b", "int", "int", 10, 0, "", 0)]
    keys = [("pay", "t", "odd", None, 1), ("pay", "t", "plain", "b", 0)]

    database = Database(SOURCE, VerifiedMysql(host="h", user="u", databases=["pay"]), Server())
    results = {module._COLUMNS: columns, module._KEYS: keys, module._TABLES: [("pay", "t", "YES", "InnoDB")]}
    database._catalog = lambda statement, _chosen: results.get(statement, [])

    assert [table.key for table in database.tables()] == [("b",)]
    assert "column_name IS NULL" in module._KEYS


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (Mysql(host="h", user="u", server_id=9, databases=["pay"]), {"pay.t": True, "pay.u": True}),
        (Mysql(host="h", user="u", server_id=9, tables=["pay.t"]), {"pay.t": True, "pay.u": False}),
        (VerifiedMysql(host="h", user="u"), {"pay.t": True, "pay.u": True}),
    ],
)
def test_tables_that_the_edges_file_does_not_name_are_not_captured(address, expected):
    """M12."""
    database = Database(SOURCE, address, Server())
    listed = [("pay", "t", "YES", "InnoDB"), ("pay", "u", "YES", "InnoDB")]
    database._catalog = lambda statement, _chosen: listed if statement == module._TABLES else []

    assert {str(table): table.captured for table in database.tables()} == expected
