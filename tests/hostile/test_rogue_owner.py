"""A rogue owner of tables in a captured database, at a real PostgreSQL with the edge as a process: a role that may create
schemas, tables, types, functions and publications. The edge goes on, honest rows arrive, and nothing runs with the edge's rights.
"""

import json
import urllib.request
from contextlib import closing

import psycopg2
import pytest

from edge.postgres.connection import Database
from headrace.errors import NeedsOperator, ReplicationError
from infra.local.server import free_port
from tests.edge.fix_edge import ids
from tests.rules.waiting import eventually

#: Functions and an operator whose types fit queries of the catalog better than the server's own do: each notes who called it.
_TRAPS = """
create function {schema}.quote_ident(name) returns text language plpgsql as $$ begin {note} return '"' || $1::text || '"'; end $$;
create function {schema}.joined(name, text) returns text language plpgsql as $$ begin {note} return textcat($1::text, $2); end $$;
create operator {schema}.|| (leftarg = name, rightarg = text, function = {schema}.joined);
create function {schema}.max(int) returns int language plpgsql as $$ begin {note} return $1; end $$;
create function {schema}.unnest(int2[]) returns setof int2 language plpgsql as $$
begin {note} return query select pg_catalog.unnest($1); end $$;
create function {schema}.concat_ws(text, text, text, text, text) returns text language plpgsql as $$
begin {note} return pg_catalog.concat_ws($1, $2, $3, $4, $5); end $$;
create function {schema}.format(text, int) returns text language plpgsql as $$
begin {note} return pg_catalog.format($1, $2); end $$;
create function {schema}.to_jsonb(pg_publication) returns jsonb language plpgsql as $$
begin {note} return pg_catalog.to_jsonb($1); end $$;
"""
_NOTE = "if current_setting('transaction_read_only') = 'off' then insert into hits.hits values (current_user::text); end if;"

#: Names that something might take for an end of its own, in SQL, JSON, a shell, a log or a topic.
NAMES = [
    '"', "'", "''; drop table honest; --", "a\nb", "a\x1b[31mb\x07", "$", "$1 %s {0} %(x)s", "\\", "a.b", "..", "/etc/passwd",
    '","source":{"version":"x","name":"london/bank"', "source", "__proto__", "é" * 31, "\u202eabc", " ", "*", "Honest", "null",
    "x[/]",
]  # fmt: skip

_LABEL = "x" * 40
#: What it makes and does, each by itself: what the server refuses is none.
ACTS = (
    "create type mood as enum ({})".format(", ".join(f"'{_LABEL}{n}'" for n in range(3000))),
    f"create table moods (id int primary key, mood mood); insert into moods values (1, '{_LABEL}0'), (2, '{_LABEL}2999')",
    f"alter type mood rename value '{_LABEL}0' to 'renamed \"'; update moods set mood = 'renamed \"'",
    """create domain d1 as text check (value <> 'x'); create domain d2 as d1;
    create table domains (id d2 primary key, b d2[])""",
    """insert into domains values ('a', array['b', null]::d2[]), ('"', '{}')""",
    """create type pair as (a int, b text);
    create table pairs (id int primary key, p pair, r int4range, m int4multirange)""",
    """insert into pairs values (1, '(1,"a""b")', '[1,5)', '{[1,2),[4,5)}')""",
    "create table wide (id int primary key, " + ", ".join(f"c{n} int" for n in range(1500)) + ")",
    "insert into wide (id) values (1); update wide set c1 = 1",
    "create table odd (id numeric primary key, t timestamptz, d date, f float8, j jsonb, b bytea, a int[][], m money)",
    r"""insert into odd values ('NaN', 'infinity', '4713-01-01 BC', 'NaN', '{"a": 1e400}', '\x00', '{{1},{2}}', '-1')""",
    "insert into odd values (1e300, '294276-01-01', '5874897-01-01', '-infinity', '{}')",
    "insert into odd (id, j) values (2, (repeat('[', 900) || repeat(']', 900))::jsonb)",
    """create table keyless (a text); alter table keyless replica identity full;
    insert into keyless values ('a'), ('a'); delete from keyless""",
    """create table moved (id int primary key); insert into moved values (1); alter table moved rename to moved2;
    create table moved (id text primary key); insert into moved values ('x'); drop table moved2""",
    "alter table moved replica identity nothing; insert into moved values ('y')",
    """create table parts (id int, k text, primary key (id, k)) partition by list (k);
    create table parts_a partition of parts for values in ('a'); insert into parts values (1, 'a')""",
    "alter table parts detach partition parts_a; truncate parts_a; drop table parts_a",
    "create publication mine for table parts; drop publication mine",
    "comment on table parts is 'x''\n\x1b[31m'",
    "select pg_logical_emit_message(true, 'headrace', 'x')",
    "select pg_logical_emit_message(false, 'headrace.marker', 'x')",
    "select pg_logical_emit_message(true, 'headrace.passed', '{}')",
    r"""select pg_logical_emit_message(true, '"}},{', '\xff'::bytea)""",
    """create table guarded (id int primary key); alter table guarded enable row level security;
    create policy p on guarded using ((select count(*) from hits.hits) >= 0); insert into guarded values (1)""",
    "create event trigger t on ddl_command_end execute function pg_catalog.now()",
    "alter system set wal_level = minimal",
)


class Owner:
    """The role, with the right to create in one database."""

    def __init__(self, database):
        self._database = database
        self.role = f"mallory_{database.name}"
        database.execute(f"create role {self.role} login; grant create on database {database.name} to {self.role}")
        database.execute(f"grant create, usage on schema public to {self.role}")
        self._connection = psycopg2.connect(database.dsn, user=self.role)
        self._connection.autocommit = True
        #: How many statements the server took.
        self.done = 0
        self.act("create schema hits; create table hits.hits (who text); grant usage on schema hits to public; "
                 "grant insert, select on hits.hits to public")  # fmt: skip

    def act(self, statement):
        """Run statements as one transaction, if the server takes them."""
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(statement)
            except psycopg2.Error:
                return False
            self.done += 1
            return True

    def set_traps(self, schema):
        return self.act(_TRAPS.format(schema=schema, note=_NOTE))

    def close(self):
        self._connection.close()
        self._database.execute(f"drop owned by {self.role} cascade; drop role {self.role}")


@pytest.fixture
def watched(edges, database, interconnect):
    """An edge with a role of its own, as docs/edge.md has it, and an honest table."""
    role = f"edge_{database.name}"
    database.execute("create table honest (id int primary key, note text)")
    database.execute(f"create role {role} login replication; grant select on all tables in schema public to {role}")
    database.execute(f"create publication {database.name} for all tables")
    metrics = f"127.0.0.1:{free_port()}"
    edge = edges(
        database, interconnect.url, user=role, rest=f'[metrics]\nlisten = "{metrics}"\n\n[records]\nmessages = ["*"]\n'
    )
    edge.metrics, edge.role = metrics, role
    yield edge
    if edge.process is not None and edge.process.poll() is None:
        edge.kill()
    database.execute(f"drop owned by {role}; drop role {role}")


def goes_on(edge, database, interconnect, number):
    database.execute("insert into honest values (%s, 'x')", [number])
    eventually(
        lambda: edge.process.poll() is not None or number in honest(interconnect),
        saying=f"row {number} of the honest table arrives",
    )
    assert edge.process.poll() is None, (edge.folder / "edge.log").read_text()[-3000:]


def honest(interconnect):
    return [
        change["after"]["id"]
        for change in interconnect.changes
        if change["op"] == "c" and change["source"]["table"] == "honest"
    ]


def test_nothing_that_an_owner_made_runs_with_the_rights_of_the_edge(watched, database, interconnect):
    """Queries took the functions and operators of any schema in the role's search path (CVE-2018-1058)."""
    edge, owner = watched, Owner(database)
    assert owner.act(f"create schema {edge.role}; grant usage on schema {edge.role} to public")
    assert owner.set_traps(edge.role)
    assert owner.set_traps("public")

    edge.init()
    edge.start()
    goes_on(edge, database, interconnect, 1)
    # It may warn of tables.
    assert "Traceback" not in edge.command("doctor").stderr
    assert edge.command("snapshot", "public.honest").returncode == 0
    eventually(lambda: ids(interconnect, "r"), saying="the copy arrives")
    assert edge.terminate() == 0

    assert database.execute("select distinct who from hits.hits") == []
    owner.close()


#: An SQLSTATE of each class whose words are passed on where they are the server's own.
_STATES = ("08006", "25006", "28000", "3D000", "3F000", "40001", "42501", "42P01", "53400", "55006", "57014", "58030")
_CARD = "4929-1234-5678-9012"
_REFUSING = """
create function public.refusing(value text, state text) returns boolean language plpgsql as $$
begin raise '%; slot "%" is active for PID 1', value, value using errcode = state; end $$;
create function public.naming(value text) returns boolean language plpgsql as $$
begin execute format('select 1 from %I', value); return true; end $$;
"""


def test_words_that_a_function_chooses_are_in_no_error_whatever_its_sqlstate(watched, database):
    """S12: `raise … using errcode` of a class that names objects brought a value into log, status and answers."""
    owner = Owner(database)
    assert owner.act(_REFUSING)
    assert owner.act(f"create table cards (card text primary key); insert into cards values ('{_CARD}')")
    assert owner.act("grant select on cards to public")
    connection = Database(watched.config.source.postgresql, "jakarta/bank")
    try:
        for condition in (*(f"public.refusing(card, '{state}')" for state in _STATES), "public.naming(card)"):
            for ask in (
                lambda condition=condition: connection.checked_rows(f"select 1 from public.cards where {condition}"),
                lambda condition=condition: connection.copied(
                    f"copy (select card from public.cards where {condition}) to stdout", 1 << 20
                ),
                # as an event trigger would, within what makes something
                lambda condition=condition: connection.alter(f"select 1 from public.cards where {condition}"),
            ):
                with pytest.raises(ReplicationError) as caught:
                    ask()
                error = caught.value
                assert _CARD not in f"{error.message} {error.hint} {vars(error)}"
                assert "SQLSTATE" in error.message
        # What the server says itself is passed on.
        with pytest.raises(NeedsOperator, match='relation "public.none" does not exist'):  # noqa: RUF043 - the point is one.
            connection.rows("select * from public.none")
    finally:
        connection.close()
        owner.close()


def test_whatever_an_owner_makes_and_writes_the_edge_goes_on_and_honest_rows_arrive(watched, database, interconnect):
    edge, owner = watched, Owner(database)
    edge.init()
    edge.start()
    goes_on(edge, database, interconnect, 1)
    for number, statement in enumerate(ACTS, 2):
        owner.act(statement)
        goes_on(edge, database, interconnect, number)
    count = len(ACTS) + 2
    for number, name in enumerate(NAMES, count):
        quoted = name.replace('"', '""')
        owner.act(f'create schema "s{quoted}"')
        owner.act(f'create table "s{quoted}"."{quoted}" ("{quoted}" int primary key, "{quoted}2" text)')
        owner.act(f'insert into "s{quoted}"."{quoted}" values (1, \'x\')')
        goes_on(edge, database, interconnect, number)
    assert owner.done > len(ACTS) * 2 // 3 + 2 * len(NAMES)

    # what the server took of the names arrives under those names,
    arrived = {change["source"]["table"] for change in interconnect.changes}
    assert set(NAMES) - arrived == set()
    # status and metrics are read by their readers, and the log holds no escape of a terminal
    status = json.loads(urllib.request.urlopen(f"http://{edge.metrics}/status", timeout=30).read())
    assert status
    assert b"headrace_edge" in urllib.request.urlopen(f"http://{edge.metrics}/metrics", timeout=30).read()
    assert honest(interconnect) == list(range(1, count + len(NAMES)))
    assert edge.terminate() == 0
    assert "\x1b[31m" not in (edge.folder / "edge.log").read_text()
    owner.close()
