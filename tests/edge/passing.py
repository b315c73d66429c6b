"""Steps of tests that pass over one transaction, the same for each engine."""

import json
from base64 import b64decode

from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually

RECORDS = 'largest_megabytes = 1\non_too_large = "stop"'
_TOO_LARGE = "update t set note = repeat('{}', 1100000) where id = 1"


def pass_over_one(edge, database, interconnect, flag, other, table):
    """Pass over a transaction whose row is too large: that one alone, refused before, and once only."""
    with edge.running() as running:
        database.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
        early = edge.command("pass", flag, other, "--yes")
        assert (early.returncode, "in use by another edge" in early.stderr) == (3, True)
        database.execute(_TOO_LARGE.format("x"))
        database.execute("insert into t values (2, 'b')")
        stopped = running.ended()
    assert isinstance(stopped, NeedsOperator)
    command, transaction = stopped.hint.rsplit(" ", 2)[1:]
    assert f"headrace edge pass {command}" in stopped.hint
    assert command == flag

    wrong = edge.command("pass", flag, other, "--yes")
    assert (wrong.returncode, f"it stopped at {transaction}" in wrong.stderr) == (3, True)
    assert edge.command("pass", flag, transaction).returncode == 2, "nobody was asked"
    passed = [json.loads(edge.command("pass", flag, transaction, "--yes", "--json").stdout) for _ in range(2)]
    assert passed[0] == passed[1]
    assert passed[0]["transaction"] == transaction

    with edge.running() as running:
        arrive(interconnect, 3)
        database.execute("insert into t values (3, 'c')")
        arrive(interconnect, 4)
        eventually(
            lambda: any(words.startswith(f"{table} needs a copy") for words in running.figures.warnings),
            saying="the table needs a copy",
        )
    first, message, *others = interconnect.changes
    assert first["after"] == {"id": 1, "note": "a"}
    assert (message["op"], message["message"]["prefix"]) == ("m", "headrace.passed")
    assert json.loads(b64decode(message["message"]["content"])) == passed[0] | {"tables": [table]}
    assert [change["after"]["id"] for change in others] == [2, 3]
    reasons = [value["rewritten"] for _, _, value in interconnect.records if value.get("rewritten")]
    assert reasons == [[f"transaction {transaction} was passed over by {passed[0]['by']}"]]

    # And one of the same kind stops it again.
    with edge.running() as running:
        database.execute(_TOO_LARGE.format("y"))
        assert transaction not in running.ended().hint
