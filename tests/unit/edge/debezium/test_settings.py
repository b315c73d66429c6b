"""`[source.debezium]`: what is refused in a file, what Debezium gets, and a checkpoint that fits."""

import json

import msgspec
import pytest

from edge.debezium.checkpoint import COPY, DebeziumCheckpoint, place_of
from edge.debezium.engine import DebeziumEngine
from edge.debezium.stream import Mark
from edge.doctor import examine
from edge.engine import Adoption, CheckpointChanged
from headrace.configuration.databases import UNPROVEN
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from headrace.findings import run
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames, java_double

FILE = """
[source]
name = "jakarta/bank"
[source.debezium]
connector = "postgres"
java = "{java}"
[source.debezium.properties]
"database.hostname" = "db"
"database.port" = 5433
"database.dbname" = "bank"
"slot.name" = "own"
{properties}
[source.debezium.secrets]
"database.password" = "env:PASSWORD"
[interconnect]
url = "amqp://127.0.0.1:1"
[state]
folder = "state"
{more}
"""
OFFSET = json.dumps({"lsn": 500})
ROWS, NO_ROWS = (f'[snapshot]\nmode = "{mode}"' for mode in ("initial", "no_data"))


OTHERS = '"table.exclude.list" = "public.t"'


def fingerprint(engine):
    """Return that of an engine's properties."""
    return engine._names.fingerprint()


def noted(slot, database="bank", system=engine_frames.SYSTEM):
    """Return how an `init` notes a slot as its own."""
    return f"{slot} of database {database} at the server with system identifier {system}"


def checkpoint(**changes):
    """Return one of a source that has read and acknowledged up to 500."""
    fields = {"acknowledged": str(Position.start(1)), "connector": "postgres", "confirmed_place": 500, "stage": "made"}
    fields |= {"system_identifier": engine_frames.SYSTEM, "offset": ("key", OFFSET)}
    return DebeziumCheckpoint(source="jakarta/bank", **fields | changes)


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSWORD", "s3cret")

    def write(properties="", more="", java="java"):
        path = tmp_path / "edge.toml"
        path.write_text(FILE.format(properties=properties, more=more, java=java))
        return load(path, EdgeFile)

    return write


def test_debezium_gets_the_files_properties_its_secrets_and_what_the_edge_depends_on(read):
    names = read('"poll.interval.ms" = 50\n"read.only" = true').source.debezium
    settings = names.settings("no_data", "p")
    wanted = {
        "database.port": "5433",
        "poll.interval.ms": "50",
        "read.only": "true",
        "slot.name": "own",
        "publication.name": "headrace",
        "database.password": "s3cret",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "true",
        "unavailable.value.placeholder": "p",
        # A quarter of its memory.
        "max.queue.size.in.bytes": str(128 << 20),
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert str(names) == "db:5433/bank (Debezium)"
    assert "s3cret" not in repr(names)


@pytest.mark.parametrize(
    ("properties", "more", "said"),
    [
        ('"snapshot.mode" = "when_needed"', "", "set 'mode' of 'snapshot'"),
        ('"offset.storage" = "x"', "", "the edge sets it"),
        ('"transforms.unwrap.type" = "x"', "", "the edge sets it"),
        ('"signal.data.collection" = "x"', "", "the edge sets it"),
        ('"lsn.flush.mode" = "manual"', "", "the edge sets it"),
        ('"flush.lsn.source" = false', "", "the edge sets it"),
        ('"slot.seek.to.known.offset.on.start" = true', "", "the edge sets it"),
        ('"transaction.metadata.factory" = "x"', "", "the edge sets it"),
        ('"event.converting.failure.handling.mode" = "warn"', "", "the edge sets it"),
        ('"database.connection.adapter" = "xstream"', "", "one of logminer, logminer_unbuffered"),
        ('"database.connection.adapter" = "olr"', "", "one of logminer, logminer_unbuffered"),
        ('"database.ssl.password" = "x"', "", "give its reference in 'secrets'"),
        ('"database.names" = "a,b"', "", "each its own edge"),
        ('"mongodb.connection.string" = "mongodb://u:p@h/"', "", "its password is a secret"),
        ("", '[records]\nprofile = "debezium"', "not for 'debezium' sources"),
        ("", "[records]\ntruncates = false", "not for 'debezium' sources"),
        ("", '[records]\nformat = "avro"', "not for 'debezium' sources"),
        ("", '[source.mysql]\nhost = "h"\nuser = "u"\nserver_id = 1', "give exactly one of"),
    ],
)
def test_what_would_not_be_followed_is_refused(read, properties, more, said):
    with pytest.raises(ConfigurationError) as error:
        read(properties, more)
    assert said in error.value.message


@pytest.mark.parametrize("connector", ["postgres", "mysql", "mariadb", "sqlserver", "oracle", "db2", "mongodb"])
def test_messages_without_a_change_are_left_out_by_proven_connectors_alone(read, tmp_path, connector):
    """A file with it that worked was refused."""
    config = read('"skip.messages.without.change" = true')
    assert config.source.debezium.settings("no_data", "p")["skip.messages.without.change"] == "true"
    path = tmp_path / "edge.toml"
    path.write_text(path.read_text().replace('"postgres"', f'"{connector}"') + "\n[spool]\nmegabytes = 0\n")
    if connector in UNPROVEN:
        with pytest.raises(ConfigurationError, match=r"'skip.messages.without.change' is not for 'properties'"):
            load(path, EdgeFile)
    else:
        load(path, EdgeFile)


@pytest.fixture
def engine(read, tmp_path, monkeypatch):
    """Return what makes an engine whose process behaves so, and whose state folder is there."""
    monkeypatch.setattr("edge.debezium.engine.class_path", lambda _connector: [tmp_path / "a.jar"])
    (tmp_path / "state").mkdir()

    def make(program, more=ROWS, properties=""):
        config = read(properties, java=java_double.write(tmp_path, program), more=more)
        return DebeziumEngine(config, config.source.debezium)

    return make


def test_a_source_that_was_never_tried_is_made_from_what_debezium_copies(read, tmp_path, monkeypatch):
    monkeypatch.setattr("edge.debezium.engine.class_path", lambda _connector: [tmp_path / "a.jar"])
    (tmp_path / "state").mkdir()
    offset = '{"commit_lsn": "000443d8:0073d0da:0005", "event_serial_no": 0}'
    java = java_double.write(tmp_path, COPIED + f'say(frame("R", record(HEARTBEATS, {offset})))\nline()')
    read(java=java, more=ROWS)
    file = tmp_path / "edge.toml"
    for connector, spool in (("sqlserver", 0), ("sqlserver", 1)):
        text = file.read_text().replace('"postgres"', f'"{connector}"', 1) + f"\n[spool]\nmegabytes = {spool}\n"
        (tmp_path / f"{spool}.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="'spool' is not for"):
        load(tmp_path / "1.toml", EdgeFile)
    config = load(tmp_path / "0.toml", EdgeFile)
    names = config.source.debezium
    settings = names.settings("initial", "p")
    assert settings["schema.history.internal"] == "headrace.debezium.SchemaHistoryFile"
    assert settings["schema.history.internal.store.only.captured.tables.ddl"] == "true"
    assert names.not_for_production() != []
    source = DebeziumEngine(config, names)
    made = source.initialise(None, None, lambda _words: None)
    place = 0x443D80073D0DA0005
    assert (made.stage, made.confirmed, made.has_copy_ahead) == ("made", place - 1, True)
    assert source.state.read("jakarta/bank") == made
    assert (tmp_path / "state" / "debezium-schema-history.jsonl").exists()
    assert made.advanced(Position(made.position.epoch, place - 1, 2), place, None).confirmed == place


COPIED = """
settings = line()
say(hello())
line()
say(*[frame("S", content) for content in schemas(COLUMNS)])
say(*[frame("R", change("r", None, {"id": number, "note": "n"}, snapshot="true")) for number in range(3)])
"""


EMPTY = 'say(hello())\nline(), line()\nsay(frame("R", heartbeat(500)))\nline()'
#: As a server with a slot, which it drops where the request names this server.
SLOT_KEPT = EMPTY.replace(
    "say(hello())\nline(), line()", "say(hello(has_slot=json.loads(line())['drop_slot_at'] != SYSTEM))\nline()"
)
#: Of a session that reads nothing.
SILENT = "line()\nsay(hello(log_end=1234))\nline()"
SLOT = EMPTY.replace("hello()", "hello(has_slot=True)")


def test_a_new_source_begins_behind_its_copy_or_where_the_log_is(engine, tmp_path):
    made = engine(COPIED + 'say(frame("R", heartbeat(500)))\nline()').initialise(None, None, lambda _words: None)
    assert (made.stage, made.confirmed, made.has_copy_ahead) == ("made", 499, True)
    assert made.system_identifier == engine_frames.SYSTEM
    assert (tmp_path / "state" / COPY).stat().st_size > 0
    again = engine("").initialise(made, None, lambda _words: None)
    assert again == made
    assert made.advanced(Position(made.position.epoch, 499, 1), 499, None).has_copy_ahead is True
    assert made.advanced(Position(made.position.epoch, 499, 2), 500, None).has_copy_ahead is False


def test_a_new_source_without_rows_begins_where_the_log_is(engine):
    made = engine(EMPTY).initialise(None, None, lambda _words: None)
    assert (made.confirmed, made.has_copy_ahead, json.loads(made.offset[1])["lsn"]) == (500, False, 500)


@pytest.mark.parametrize(
    ("program", "next_program"),
    [
        (COPIED, SLOT_KEPT),
        (COPIED + 'say(frame("R", begin(7, 900)))\nline()', SLOT_KEPT),
        # Before anything was made.
        ("sys.exit(3)", EMPTY),
    ],
)
def test_an_init_that_is_cut_is_finished_by_the_next_one(engine, program, next_program):
    first = engine(program)
    with pytest.raises(NotConnected):
        first.initialise(None, None, lambda _words: None)
    cut = first.state.read("jakarta/bank")
    assert (cut.stage, cut.offset) == ("making", None)
    assert cut.slot in ("", noted("own"))
    made = engine(next_program).initialise(cut, None, lambda _words: None)
    assert (made.stage, made.position, made.slot) == ("made", cut.position, "")


def test_an_init_that_is_cut_is_finished_with_another_connector(engine):
    cut = checkpoint(stage="making", connector="mysql", offset=None, confirmed_place=0)
    made = engine(EMPTY).initialise(cut, None, lambda _words: None)
    assert (made.connector, made.confirmed) == ("postgres", 500)


def test_a_slot_is_dropped_only_where_an_init_of_this_state_has_noted_it(engine):
    first = engine("line()\nsay(hello(has_slot=True))\nline()")
    with pytest.raises(NeedsOperator):
        first.initialise(None, None, lambda _words: None)
    cut = first.state.read("jakarta/bank")
    assert cut.slot == ""
    with pytest.raises(NeedsOperator, match="is there already"):
        engine(SLOT_KEPT).initialise(cut, None, lambda _words: None)
    ours = msgspec.structs.replace(cut, slot=noted("own"))
    with pytest.raises(NotConnected, match="still in use"):
        engine("line()\nsay(hello(has_slot=True))\nline()").initialise(ours, None, lambda _words: None)
    # At another server, in another database, or as it was noted before: a slot of that name is another's.
    for slot in (
        noted("own", system="7000000000000000002"),
        noted("own", database="b"),
        "own at db:5433/bank (Debezium)",
    ):
        elsewhere = msgspec.structs.replace(cut, slot=slot)
        with pytest.raises(NeedsOperator, match="is there already"):
            engine(SLOT_KEPT).initialise(elsewhere, None, lambda _words: None)
    said = []
    other = msgspec.structs.replace(cut, slot=noted("other"))
    engine(EMPTY).initialise(other, None, said.append)
    assert [words for words in said if "Slot other" in words] != []


def test_how_the_server_is_reached_and_how_much_is_read_at_once_is_no_other_properties(read):
    plain = read().source.debezium
    secrets = {
        "database.password": plain.secrets["database.password"],
        "database.sslpassword": plain.secrets["database.password"],
    }
    more = {
        "database.hostname": "elsewhere",
        "database.port": 1,
        "database.user": "u",
        "database.sslmode": "verify-full",
        "database.sslrootcert": "/ca",
        "connection.timeout.ms": 5,
        "max.batch.size": 5,
        "max.queue.size": 50,
        "poll.interval.ms": 5,
        "snapshot.fetch.size": 5,
    }
    moved = msgspec.structs.replace(plain, properties=plain.properties | more, secrets=secrets)
    assert moved.fingerprint() == plain.fingerprint()
    for name in ("table.include.list", "slot.name", "database.dbname"):
        other = msgspec.structs.replace(plain, properties=plain.properties | {name: "x"})
        assert other.fingerprint() != plain.fingerprint()


def test_rows_are_not_copied_where_the_slot_is_there_as_its_log_has_a_part_of_them_too(engine):
    with pytest.raises(NeedsOperator) as error:
        engine(SLOT).initialise(None, None, lambda _words: None)
    assert "slot own is there already" in error.value.message
    assert "pg_drop_replication_slot('own')" in error.value.hint
    # Without a copy it is only where to read from.
    made = engine(SLOT, NO_ROWS).initialise(None, None, lambda _words: None)
    assert made.confirmed == 500


def test_a_session_knows_where_the_log_ends_before_it_reads(engine):
    source = engine(SILENT)
    session = source.open(checkpoint(properties=fingerprint(source)), 0)
    try:
        assert session.log_end() == 1234
    finally:
        session.close()


@pytest.mark.parametrize(
    ("changes", "stopped_at"),
    [
        pytest.param({"acknowledged": str(Position(1, 599, 3))}, str(Position(1, 599, 3)), id="within a transaction"),
        pytest.param({"confirmed_place": 499, "copy_ahead": True}, None, id="a copy ahead"),
        pytest.param({"confirmed_place": 499}, None, id="a copy ahead, as it was noted before"),
        pytest.param({"acknowledged": str(Position(1, 499, 3))}, "", id="after an unclean stop"),
        pytest.param({}, "", id="before the first acknowledgement"),
        pytest.param(
            {"acknowledged": str(Position(1, 499, 3)), "spooled": str(Position(1, 599, 3))},
            str(Position(1, 499, 3)),
            id="in the spool",
        ),
    ],
)
def test_properties_do_not_change_while_a_transaction_may_be_sent_in_part(engine, tmp_path, changes, stopped_at):
    before = checkpoint(properties=fingerprint(engine("")), **changes)
    if stopped_at is not None:
        note = {"settings": "", "stopped_at": stopped_at}
        (tmp_path / "state" / "records.json").write_text(json.dumps(note))
    with pytest.raises(NeedsOperator, match="properties are others than before"):
        engine("", properties=OTHERS).open(before, 0)
    engine(SILENT).open(before, 0).close()


def test_properties_that_change_between_transactions_are_in_the_checkpoint_before_anything_is_sent_by_them(
    engine, tmp_path
):
    stopped = str(Position(1, 499, 3))
    before = checkpoint(properties=fingerprint(engine("")), acknowledged=stopped)
    (tmp_path / "state" / "records.json").write_text(json.dumps({"settings": "", "stopped_at": stopped}))
    other = engine(SILENT, properties=OTHERS)
    with pytest.raises(CheckpointChanged) as error:
        other.open(before, 0)
    moved = error.value.checkpoint
    assert (moved.position, moved.confirmed, moved.offset) == (before.position, before.confirmed, before.offset)
    other.open(moved, 0).close()


def test_another_server_is_refused_before_anything_is_read_from_it(engine, tmp_path):
    other = engine(
        f"line()\nbegan = open({str(tmp_path / 'began')!r}, 'w')\n"
        "say(hello(system='7000000000000000002'))\nbegan.write(line())"
    )
    before = checkpoint(properties=fingerprint(other))
    with pytest.raises(NeedsOperator) as error:
        other.open(before, 0)
    assert "the server is another one: its system identifier is 7000000000000000002" in error.value.message
    assert (tmp_path / "began").read_text() == ""
    # The same server at another address, or a copy of it.
    engine(SILENT).open(before, 0).close()


def test_a_checkpoint_without_a_system_identifier_takes_that_of_the_present_server(engine):
    source = engine(SILENT)
    before = checkpoint(properties=fingerprint(source), system_identifier="")
    with pytest.raises(CheckpointChanged) as error:
        source.open(before, 0)
    assert error.value.checkpoint == msgspec.structs.replace(before, system_identifier=engine_frames.SYSTEM)
    source.open(error.value.checkpoint, 0).close()


def test_a_checkpoint_of_another_connector_and_an_adoption_are_refused(engine):
    with pytest.raises(NeedsOperator, match="'mysql'"):
        engine("").open(checkpoint(connector="mysql"), 0)
    with pytest.raises(NeedsOperator, match="cannot be adopted"):
        engine("").initialise(None, Adoption(None), lambda _words: None)


def test_a_checkpoint_whose_offset_names_no_place_is_damaged(engine):
    state = engine("").state
    for connector, offset in (("postgres", "{}"), ("mariadb", OFFSET), ("oracle", OFFSET)):
        state.write(checkpoint(connector=connector, offset=("key", offset)))
        with pytest.raises(NeedsOperator, match="is damaged"):
            state.read("jakarta/bank")
    state.write(checkpoint())
    assert state.read("jakarta/bank") == checkpoint()


def test_the_checkpoint_moves_to_acknowledged_places_alone():
    debezium_checkpoint = DebeziumCheckpoint(
        source="a/b",
        stage="made",
        acknowledged=str(Position(1, 4, 0)),
        connector="postgres",
        confirmed_place=5,
        copy_ahead=False,
        offset=("key", "old"),
    )
    assert debezium_checkpoint.advanced(Position(1, 3, 0), 4, None) == debezium_checkpoint
    moved = debezium_checkpoint.advanced(Position(1, 9, 0), 10, ("key", "new"))
    assert (moved.confirmed, moved.place, moved.position) == (10, "new", Position(1, 9, 0))


@pytest.mark.parametrize("copy_ahead", [None, False])
def test_an_idle_heartbeat_at_whose_place_more_may_come_is_no_copy_ahead(copy_ahead):
    """An edge of SQL Server, Oracle, Db2 or MongoDB that had been idle asked for a copy at its next start."""
    lsns = "00000027:00000758:0005", "00000027:00000ac0:0007"
    first, second = (("key", json.dumps({"commit_lsn": lsn, "change_lsn": None})) for lsn in lsns)
    places = [place_of("sqlserver", offset) for _, offset in (first, second)]
    fields = {"connector": "sqlserver", "confirmed_place": places[0], "offset": first, "copy_ahead": copy_ahead}
    idle = checkpoint(acknowledged=str(Position(1, places[0] - 1, 2)), **fields).advanced(
        Position.start(1), places[1] - 1, second
    )
    assert (idle.confirmed, idle.offset, idle.has_copy_ahead) == (places[1] - 1, second, False)
    # As it was noted before.
    assert not msgspec.structs.replace(idle, copy_ahead=None).has_copy_ahead


@pytest.mark.parametrize(
    ("connector", "offset", "has_copy", "is_ahead"),
    [
        ("sqlserver", '{"commit_lsn":"00000027:00000758:0005","change_lsn":"NULL"}', True, True),
        # Idle since an `init` without rows.
        ("sqlserver", '{"commit_lsn":"00000027:00000758:0005","change_lsn":"NULL"}', False, False),
        # The copy is lost.
        ("postgres", OFFSET, False, True),
    ],
)
def test_a_former_checkpoint_of_an_unproven_connector_has_a_copy_ahead_where_its_file_is(
    engine, tmp_path, connector, offset, has_copy, is_ahead
):
    state = engine("").state
    state.write(
        checkpoint(connector=connector, confirmed_place=place_of(connector, offset) - 1, offset=("key", offset))
    )
    if has_copy:
        (tmp_path / "state" / COPY).touch()
    assert state.read("jakarta/bank").has_copy_ahead is is_ahead


@pytest.mark.parametrize(
    ("said", "level", "text"),
    [
        ('openjdk version "25.0.2" 2026-01-20', "ok", "is Java 25"),
        ('openjdk version "17.0.15" 2025-04-15', "wrong", "older than Java 21"),
        ('java version "1.8.0_292"', "wrong", "older than Java 21"),
        ("no version", "wrong", "older than Java 21"),
    ],
)
def test_doctor_looks_at_java_and_at_the_jars(read, tmp_path, monkeypatch, said, level, text):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "none"))
    names = read(java=java).source.debezium
    jars, found = run((examine.look_at_jars, examine.look_at_java), names)
    assert (found.check, found.level) == ("java", level)
    assert text in found.text
    assert (jars.level, "headrace jars debezium-postgres" in jars.fix) == ("wrong", True)


def test_doctor_asks_the_server_by_the_engine_and_makes_nothing_there(read, tmp_path, monkeypatch):
    monkeypatch.setattr(examine, "class_path", lambda _connector: [tmp_path / "a.jar"])
    settings = {"binlog_format": "ROW", "gtid_mode": "OFF", "server_id": "1"}
    java = java_double.write(tmp_path, f"line()\nsay(hello(settings={settings}))\nassert line() == ''")
    result = list(examine.look_at_server(read(java=java).source.debezium))
    assert [(each.check, each.level) for each in result] == [
        ("server", "ok"),
        ("binlog_format", "ok"),
        ("gtid_mode", "wrong"),
    ]
    assert engine_frames.SYSTEM in result[0].text
    assert "set global gtid_mode = 'ON'" in result[2].fix


def test_a_java_that_is_not_there_is_found(read):
    (found,) = examine.look_at_java(read(java="/nowhere/java").source.debezium)
    assert (found.level, "21" in found.fix) == ("wrong", True)


def test_what_was_acknowledged_before_the_next_session_is_in_the_checkpoint_with_its_offset(engine):
    source = engine(EMPTY)
    made = source.initialise(None, None, lambda _words: None)
    source._marks.add(Mark(900, 1, ("key", '{"lsn":900}')))
    session = source.open(made, 0)
    try:
        # As Progress.restart writes it: the session is open, and has not begun.
        moved = source.advanced(made, Position(made.position.epoch, 899, 0), 900)
    finally:
        session.close()
    assert (moved.confirmed, moved.place) == (900, '{"lsn":900}')
