"""Lag of a MariaDB source tells the truth: none while idle, over the end of a file too, and growing while stuck (B14)."""

from tests.rules.waiting import eventually


def is_idle(figures):
    return figures.captured_lag == 0 and figures.accepted_lag == 0 and figures.state == "capturing"


def test_an_idle_source_lags_by_nothing_in_whatever_file_its_log_is(maria_edge, maria):
    with maria_edge.running() as agent:
        maria.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.captured and is_idle(agent.figures))
        for _ in range(3):
            before = agent.figures.log_clock._looked_at
            maria.execute("flush binary logs")
            eventually(lambda before=before: agent.figures.log_clock._looked_at > before and is_idle(agent.figures))
        # The server may have written something by itself between two looks.
        eventually(lambda: agent.figures.server_lsn <= agent.figures.read_lsn)


def test_while_nothing_is_accepted_lag_grows(maria_edge, maria, interconnect):
    with maria_edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        interconnect.hold()
        maria.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.accepted_lag > 1.0)
        eventually(lambda: agent.figures.captured_lag == 0)
        interconnect.let_go()
        eventually(lambda: is_idle(agent.figures))


def test_log_that_is_not_confirmed_is_compared_with_the_age_at_which_the_server_removes_it(
    maria_edge, maria, interconnect
):
    kept = maria.execute("select @@global.binlog_expire_logs_seconds")[0][0]
    with maria_edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        assert agent.figures.log_retention_seconds == (float(kept) or None)
        eventually(lambda: agent.figures.unconfirmed_log == 0)
        interconnect.hold()
        maria.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.unconfirmed_log > 1.0)
        # As if the server kept its log for a second.
        agent.figures.log_retention_seconds = 1.0
        assert any("at which the server removes it" in text for text in agent.figures.warnings)
        interconnect.let_go()
        eventually(lambda: agent.figures.unconfirmed_log == 0)
