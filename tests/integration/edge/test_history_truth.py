"""The checker's truth, read back from a real server."""

from contextlib import closing

from tests.history import truth
from tests.history.transactions import Change, Number


def test_slot_of_its_own_tells_what_was_committed(database):
    # Given a slot, and then changes of every kind, one of them rolled back.
    slot = f"truth_{database.name}"
    with closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE TABLE t (b text, a int, at timestamptz, PRIMARY KEY (a, b)); CREATE TABLE u (d numeric(9, 2))"
        )
        truth.begin(connection, slot)
        cursor.execute(
            "BEGIN; INSERT INTO t VALUES ('it''s', 1, '2026-01-31 10:15+01'); INSERT INTO u VALUES (1.5); COMMIT"
        )
        cursor.execute("BEGIN; INSERT INTO t VALUES ('never', 2, NULL); ROLLBACK")
        cursor.execute("UPDATE t SET a = 3; ")
        cursor.execute("DELETE FROM t")
        cursor.execute("TRUNCATE t, u")

        # When it is read, twice over.
        offsets = truth.committed(connection, slot)
        keys = truth.keys(connection)
        again = truth.committed(connection, slot)

    # Then it is what was committed, with commit records that lie in order.
    row = {"b": "it's", "a": Number("1"), "at": "2026-01-31T09:15:00Z"}
    moved = {"b": "it's", "a": Number("3"), "at": "2026-01-31T09:15:00Z"}
    assert [transaction.changes for transaction in offsets] == [
        (Change("public.t", "c", None, row), Change("public.u", "c", None, {"d": "1.50"})),
        (Change("public.t", "u", {"b": "it's", "a": Number("1")}, moved),),
        (Change("public.t", "d", {"b": "it's", "a": Number("3")}, None),),
        (Change("public.t", "t", None, None), Change("public.u", "t", None, None)),
    ]
    ends = [place for transaction in offsets for place in (transaction.last_change, transaction.end)]
    assert ends == sorted(ends)
    assert keys == {"public.t": ("a", "b")}
    assert again == offsets
