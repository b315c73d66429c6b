"""M5: whether the log has the changes of what is captured, by what the server says of itself; and M17, how much of it is kept."""

import logging

import pytest

from edge.mysql.checks import retention_bytes, retention_seconds
from edge.mysql.coverage import check_logged, gaps, unmatched
from headrace.configuration.edge import Mysql
from headrace.errors import NeedsOperator


class Server:
    """A server with databases `shop` and `crm`, with some settings."""

    release = (9, 7, 4)

    def __init__(self, *, mariadb=False, only="", ignored="", replicates=False, refuses=False, **variables):
        self.is_mariadb = mariadb
        self.status = {"File": "binlog.000001", "Position": 4, "Binlog_Do_DB": only, "Binlog_Ignore_DB": ignored}
        self.replicates, self.refuses, self.variables = replicates, refuses, variables

    def variable(self, name):
        return self.variables.get(name)

    def dictionaries(self, _query):
        return [self.status]

    def rows(self, query, *parameters):
        if "slaves status" in query and self.refuses:
            raise NeedsOperator("access denied", hint="")
        if "Slaves_running" in query:
            return [("Slaves_running", str(int(self.replicates)))]
        if query.startswith("show"):
            return [("waiting",)] if self.replicates else []
        if "tables" in query:
            return [("orders",), ("Items",)] if parameters == ("shop",) else []
        return [(name,) for name in ("mysql", "sys", "information_schema", "performance_schema", "shop", "crm")]


def source(**changes):
    return Mysql(host="h", user="u", server_id=9, **changes)


@pytest.mark.parametrize(
    ("server", "names", "expected"),
    [
        ({}, {}, []),
        ({"only": "shop"}, {"databases": ["shop"]}, []),
        ({"only": "shop"}, {"databases": ["shop", "crm"]}, ["binlog_do_db = shop keeps crm out of it"]),
        ({"only": "shop"}, {}, ["binlog_do_db = shop keeps crm out of it"]),
        # The server looks at these only without the former.
        ({"only": "shop", "ignored": "shop"}, {"tables": ["shop.orders"]}, []),
        ({"ignored": "crm,other"}, {"tables": ["shop.orders"]}, []),
        ({"ignored": "crm,shop"}, {"tables": ["shop.orders"]}, ["binlog_ignore_db = crm,shop keeps shop out of it"]),
        ({"log_slave_updates": "OFF"}, {}, []),
        ({"log_slave_updates": "ON", "replicates": True}, {}, []),
        ({"log_slave_updates": "OFF", "replicates": True}, {}, ["it is a replica with log_slave_updates = OFF"]),
        ({"log_slave_updates": "OFF", "replicates": True, "mariadb": True}, {}, ["it is a replica with"]),
        # With the documented privileges MariaDB shows whether a replica runs, and no more.
        ({"log_slave_updates": "OFF", "replicates": True, "mariadb": True, "refuses": True}, {}, ["it is a replica"]),
        ({"log_slave_updates": "OFF", "mariadb": True, "refuses": True}, {}, []),
    ],
)
def test_what_the_log_lacks_of_what_is_captured_is_found(server, names, expected):
    result = gaps(Server(**server), source(**names))

    assert len(result) == len(expected)
    assert all(gap.what.startswith(words) for gap, words in zip(result, expected, strict=True))


def test_a_new_source_is_refused_for_any_gap_and_one_that_runs_for_those_that_are_certain(caplog):
    server, named, everything = Server(only="shop"), source(databases=["crm"]), source()
    for names, new in ((named, True), (named, False), (everything, True)):
        with pytest.raises(NeedsOperator, match="the server's log lacks changes that are captured: binlog_do_db"):
            check_logged(server, names, new=new)
    with caplog.at_level(logging.WARNING):
        check_logged(server, everything, new=False)
    assert "may lack changes that are captured: binlog_do_db = shop keeps crm out of it" in caplog.text


def test_names_that_match_nothing_are_listed_with_those_that_differ_by_case():
    assert unmatched(Server(), source()) == []
    assert unmatched(Server(), source(databases=["shop", "Shop", "hr"])) == [
        "there is no database Shop, but shop: names are compared exactly",
        "there is no database hr, or the edge's user may not see it",
    ]
    assert unmatched(Server(), source(databases=["unused"], tables=["shop.orders", "shop.items", "hr.a", "hr.b"])) == [
        "there is no table shop.items, but shop.Items: names are compared exactly",
        "there is no database hr, or the edge's user may not see it",
    ]


@pytest.mark.parametrize(
    ("variables", "seconds", "most"),
    [
        ({}, None, (0, "")),
        ({"binlog_expire_logs_seconds": "60"}, 60.0, (0, "")),
        ({"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"}, None, (0, "")),
        ({"expire_logs_days": "2", "max_binlog_total_size": "4096"}, 172_800.0, (4096, "max_binlog_total_size")),
        ({"max_binlog_total_size": "0", "binlog_space_limit": "9"}, None, (9, "binlog_space_limit")),
    ],
)
def test_how_long_and_how_much_of_the_log_is_kept(variables, seconds, most):
    """M17."""
    server = Server(**variables)
    assert (retention_seconds(server), retention_bytes(server)) == (seconds, most)
