"""`headrace edge new`, `bridge new`, `lake new`: a minimal file with comments, from flags or from a few questions."""

import json
import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import click

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.value_types import IN_WORDS, SOURCE_NAME
from headrace.errors import ConfigurationError
from headrace.printable import echo

_DATABASES = {"postgresql": 5432, "postgres": 5432, "mariadb": 3306, "mysql": 3306}
#: By scheme, what Debezium's connector calls the database.
_BY_DEBEZIUM = {"sqlserver": "names", "oracle": "dbname", "db2": "dbname", "mongodb": ""}

_EDGE = """\
# The file of an edge: one database, whose changes go to a bridge, router or broker. All fields: `headrace config reference`.

[source]
# REGION/NAME: unique among all sources, part of every record, and not to be changed later.
name = {source}

[source.{engine}]
host = {host}
port = {port}
{database}user = {user}
# The password is read from this environment variable; "file:PATH" reads a file.
password = "env:{variable}"
# "verify-full" checks the server's certificate and name; {weaker}.
sslmode = "verify-full"
{more}
[interconnect]
url = {interconnect}
{certificates}
[state]
# What the edge has to remember: keep this folder on a disk that outlives the machine or container.
folder = {folder}

[metrics]
# Health, metrics and status over HTTP.
listen = "127.0.0.1:9187"
"""

_DEBEZIUM = """\
# Experimental, never run against a server by us: see docs/debezium.md for how to try it and what to report.
[source.debezium]
connector = "{connector}"
java = "java"

[source.debezium.properties]
{properties}
[source.debezium.secrets]
{secret} = "env:{variable}"
{more}"""

_BRIDGE = """\
# The file of a bridge: it receives what edges send and commits it to Kafka. `headrace config reference` lists all fields.

[kafka]
bootstrap = {bootstrap}
# "SASL_SSL" with 'user' and 'password', or "SSL" with 'certificate' and 'key', where the cluster demands it.
security_protocol = "PLAINTEXT"

[interconnect]
# Edges connect to this address. With 'url' in its place, the bridge connects out to a router or broker.
listen = {listen}
# Edges are known by their certificates: 'headrace certs' makes some for trials.
# certificate = "bridge.pem"
# key = "bridge.key"
# authority = "authority.pem"

[streams.{stream}]
# Replicas of the topic, when 'headrace bridge init' creates it; 3 outlive the loss of a broker.
replication = {replication}

[streams.{stream}.sources]
# Which partitions each source owns; never moved silently.
{sources}

[requests]
# Headquarters may ask edges for their status through this bridge ('headrace ask'); 'headrace bridge init' makes its two topics.
replication = {replication}

[metrics]
listen = "127.0.0.1:9188"
"""

_LAKE = """\
# The file of a lake: which streams are loaded into Delta tables, and where. `headrace config reference` lists all fields.

[lake]
# A folder, or a URI that Hadoop knows.
root = {root}

[kafka]
bootstrap = {bootstrap}
security_protocol = "PLAINTEXT"

[streams.{stream}]
sources = {sources}

[streams.{stream}.schedule]
# When Airflow loads it: a cron expression or a preset; empty for loads by hand only.
cron = "@hourly"
"""

_output = click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write; one that is there is never replaced.",
)
_sources = click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="REGION/NAME",
    help="A source of the stream; may be given again.",
    required=True,
)


@click.command("new")
@click.option("--source", prompt="Source, REGION/NAME", metavar="REGION/NAME", help="The source's name.")
@click.option(
    "--database",
    prompt="Database, such as postgresql://headrace@db.internal/bank",
    metavar="URL",
    help="postgresql://USER@HOST[:PORT]/DATABASE, mariadb://USER@HOST[:PORT] or mysql://…; by Debezium's engine, experimental: "
    "sqlserver://, oracle://, db2:// or mongodb://USER@HOST/DATABASE. Without a password.",
)
@click.option(
    "--interconnect",
    prompt="Bridge, router or broker, such as amqps://bridge.example.org:5671",
    metavar="URL",
    help="Where changes are sent.",
)
@click.option("--state", default="state", show_default=True, help="Folder of the edge's state, relative to the file.")
@click.option(
    "--server-id",
    type=click.IntRange(1, 4_294_967_295),
    default=4711,
    show_default=True,
    help="Of MariaDB and MySQL only.",
)
@_output
def new_edge(source: str, database: str, interconnect: str, state: str, server_id: int, output: Path) -> None:
    """Write a minimal file for an edge, with comments; what is not given is asked."""
    _source(source)
    parts = urlsplit(database)
    if parts.scheme not in _DATABASES | _BY_DEBEZIUM or not parts.hostname or not parts.username:
        raise ConfigurationError(
            f"--database {_without_password(database)}: expected postgresql://USER@HOST/DATABASE, mariadb://USER@HOST or mysql://USER@HOST"
        )
    if parts.password:
        raise ConfigurationError(
            "--database holds a password", hint="Leave it out: the file refers to an environment variable."
        )
    variable = f"{source.replace('/', '_').replace('-', '_').replace('.', '_').upper()}_PASSWORD"
    postgres = parts.scheme.startswith("postgres")
    name = parts.path.strip("/")
    if (postgres or parts.scheme in _BY_DEBEZIUM) and not name:
        raise ConfigurationError(f"--database {database}: which database? Give {parts.scheme}://USER@HOST/DATABASE")
    more = "" if postgres else f"# Unique among the server's replicas.\nserver_id = {server_id}\n"
    if name and not postgres:
        more += f"databases = [{_quote(unquote(name))}]\n"
    text = _EDGE.format(
        source=_quote(source),
        engine="postgresql" if postgres else parts.scheme,
        host=_quote(parts.hostname),
        port=parts.port or _DATABASES.get(parts.scheme, 0),
        database=f"database = {_quote(unquote(name))}\n" if postgres else "",
        user=_quote(unquote(parts.username)),
        variable=variable,
        weaker='"prefer" takes any' if postgres else '"disable" uses no TLS',
        more=more,
        interconnect=_quote(interconnect),
        certificates=_certificates(source) if interconnect.startswith("amqps://") else "",
        folder=_quote(state),
    )
    if parts.scheme in _BY_DEBEZIUM:
        begin, end = text.index("[source."), text.index("\n[interconnect]")
        text = text[:begin] + _by_debezium(parts, unquote(name), variable) + text[end:]
    _write(output, text)
    load(output, EdgeFile)
    echo(f"{output} written. Next: 'headrace edge init --config {output}', then 'headrace edge run --config {output}'.")


@click.command("new")
@click.option("--bootstrap", prompt="Kafka, HOST:PORT[,HOST:PORT…]", help="Kafka's bootstrap servers.")
@click.option("--listen", default="0.0.0.0:5671", show_default=True, help="Where edges connect to.")
@click.option("--stream", default="changes", show_default=True, help="The stream, and its topic.")
@click.option("--replication", type=click.IntRange(1), default=3, show_default=True, help="Replicas of the topic.")
@_sources
@_output
def new_bridge(
    bootstrap: str, listen: str, stream: str, replication: int, sources: tuple[str, ...], output: Path
) -> None:
    """Write a minimal file for a bridge, with comments; what is not given is asked."""
    for source in sources:
        _source(source)
    lines = [f"{_quote(source)} = [{number}]" for number, source in enumerate(sources)]
    text = _BRIDGE.format(
        bootstrap=_quote(bootstrap),
        listen=_quote(listen),
        stream=_quote(stream),
        replication=replication,
        sources="\n".join(lines),
    )
    _write(output, text)
    load(output, BridgeFile)
    echo(
        f"{output} written. Next: 'headrace bridge init --config {output}', then 'headrace bridge run --config {output}'."
    )


@click.command("new")
@click.option("--bootstrap", prompt="Kafka, HOST:PORT[,HOST:PORT…]", help="Kafka's bootstrap servers.")
@click.option("--root", prompt="Folder or URI of the lake", help="Where the tables are.")
@click.option("--stream", default="changes", show_default=True, help="The stream to load.")
@_sources
@_output
def new_lake(bootstrap: str, root: str, stream: str, sources: tuple[str, ...], output: Path) -> None:
    """Write a minimal file for a lake, with comments; what is not given is asked."""
    for source in sources:
        _source(source)
    text = _LAKE.format(
        root=_quote(root), bootstrap=_quote(bootstrap), stream=_quote(stream), sources=json.dumps(list(sources))
    )
    _write(output, text)
    load(output, LakeFile)
    echo(f"{output} written. Next: 'headrace lake load {stream} --config {output}'.")


def _by_debezium(parts: SplitResult, name: str, variable: str) -> str:
    user, host, port = unquote(parts.username or ""), parts.hostname or "", parts.port
    if parts.scheme == "mongodb":
        where = {
            "mongodb.connection.string": f"mongodb://{host}:{port or 27017}/",
            "mongodb.user": user,
            "database.include.list": name,
        }
    else:
        where = {"database.hostname": host, "database.user": user, f"database.{_BY_DEBEZIUM[parts.scheme]}": name}
        where |= {"database.port": str(port)} if port else {}
    secret = "mongodb.password" if parts.scheme == "mongodb" else "database.password"
    return _DEBEZIUM.format(
        connector=parts.scheme,
        properties="".join(f"{_quote(each)} = {_quote(value)}\n" for each, value in where.items()),
        secret=_quote(secret),
        variable=variable,
        # Places of these logs do not fit the spool's file.
        more="\n[spool]\nmegabytes = 0\n" if parts.scheme in {"sqlserver", "db2"} else "",
    )


def _source(name: str) -> None:
    if not re.match(SOURCE_NAME, name):
        raise ConfigurationError(f"--source {name}: expected {IN_WORDS[SOURCE_NAME]}")


def _certificates(source: str) -> str:
    name = source.replace("/", "-")
    return (
        "# How the other side knows this edge, and whom this edge trusts: 'headrace certs' makes some for trials.\n"
        f'certificate = "{name}.pem"\nkey = "{name}.key"\nauthority = "authority.pem"\n'
    )


def _quote(text: str) -> str:
    # A JSON string is one of TOML's.
    return json.dumps(text, ensure_ascii=False)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url


def _write(path: Path, text: str) -> None:
    if path.exists():
        raise ConfigurationError(f"{path} is there already", hint="Give another name with --output, or remove it.")
    path.write_text(text, encoding="utf-8")
