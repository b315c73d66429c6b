"""Rows for the table `t`."""


def insert(database, first, last):
    database.execute("insert into t select i, 'n' || i from generate_series(%s, %s) i", [first, last])


def commit_one_by_one(database, first, last):
    database.execute(
        f"do $$ begin for i in {first}..{last} loop insert into t values (i, 'n'); commit; end loop; end $$"
    )
