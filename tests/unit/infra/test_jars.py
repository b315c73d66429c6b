"""Jars: complete, absent or repaired, never half there. A folder of this test replaces the Maven repository."""

import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from headrace.errors import NeedsOperator, NotConnected
from headrace.terminal import Terminal
from infra.local import jars
from infra.local.ivy import Group
from tests.servers import jars as tests_jars

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>org.example</groupId><artifactId>{name}</artifactId><version>{version}</version><packaging>{kind}</packaging>
<dependencies>{needs}</dependencies></project>"""
NEED = "<dependency><groupId>org.example</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def publish(repository, name, version, *, needs=(), kind="jar"):
    folder = repository / "org" / "example" / name / version
    folder.mkdir(parents=True)
    pom = POM.format(name=name, version=version, kind=kind, needs="".join(NEED.format(*need) for need in needs))
    (folder / f"{name}-{version}.pom").write_text(pom)
    with zipfile.ZipFile(folder / f"{name}-{version}.jar", "w") as jar:
        jar.writestr("hello", name)


def use(monkeypatch, tmp_path, root):
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="it"/><resolvers><ibiblio name="it" m2compatible="true" root="{root}"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv("HEADRACE_IVY_SETTINGS", str(settings))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    root = tmp_path / "repository"
    publish(root, "water", "1.0", needs=[("wheel", "1.0"), ("sluice", "1.0")])
    publish(root, "wheel", "1.0", kind="bundle")
    publish(root, "sluice", "1.0")
    publish(root, "sluice", "2.0")
    use(monkeypatch, tmp_path, root.as_uri() + "/")
    return root


def sums_of(group, folder):
    """Return the sums of what the repository has."""
    file = folder / "sums"
    jars.record_sums(file, [group], Terminal(file=io.StringIO()))
    return jars.read_sums(file)


@pytest.fixture
def said():
    return Terminal(file=io.StringIO(), width=500)


def test_absent_jars_say_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "nowhere"))

    for ask in (jars.spark, jars.kafka):
        with pytest.raises(NeedsOperator, match=str(tmp_path)) as caught:
            ask()
        assert "make setup" in caught.value.hint


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (jars.spark, "headrace jars lake"),
        (jars.kafka, "headrace jars local"),
        (jars.mariadb, "headrace jars demo"),
        (jars.object_store, "headrace jars object-store"),
        (tests_jars.flink, "make setup"),
    ],
)
def test_the_command_that_is_named_fetches_what_is_absent(tmp_path, monkeypatch, ask, command):
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    with pytest.raises(NeedsOperator) as caught:
        ask()
    assert caught.value.hint.startswith(f"'{command}'")


def test_folder_whose_files_differ_from_its_manifest_is_not_complete(tmp_path, monkeypatch):
    # Given a complete group.
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    folder = tmp_path / "kafka"
    folder.mkdir()
    (folder / "kafka.jar").write_bytes(b"1234")
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"pins": [*jars.KAFKA.pins], "files": {"kafka.jar": 4}}))
    assert jars.kafka() == [folder / "kafka.jar"]

    # When a jar is cut short, or the pins are others, then it is complete no more.
    (folder / "kafka.jar").write_bytes(b"123")
    with pytest.raises(NeedsOperator):
        jars.kafka()
    manifest.write_text(json.dumps({"pins": ["org.example:older:1"], "files": {"kafka.jar": 3}}))
    with pytest.raises(NeedsOperator):
        jars.kafka()


def test_o8_no_purpose_fetches_what_it_does_not_start():
    names = {purpose: [group.name for group in groups] for purpose, groups in jars.PURPOSES.items()}

    assert names["lake"] == ["spark"]
    assert names["demo"] == ["spark", "kafka", "mariadb"]
    assert "debezium" not in [group.name for groups in tests_jars.PURPOSES.values() for group in groups]


@pytest.mark.parametrize(("module", "more"), [(jars, ()), (tests_jars, (tests_jars.DEBEZIUM, tests_jars.STRIMZI))])
def test_s16_every_pinned_file_has_a_sum(module, more):
    sums = jars.read_sums(module.SUMS)
    groups = {group.name: group for each in module.PURPOSES.values() for group in each} | {it.name: it for it in more}

    assert {name.partition("/")[0] for name in sums} == groups.keys()
    for name, group in groups.items():
        for pin in group.pins:
            _, artifact, revision, *_ = pin.split(":")
            assert any(file.startswith(f"{name}/{artifact}-{revision}") for file in sums), pin
    assert all(re.fullmatch("[0-9a-f]{64}", total) for total in sums.values())


@pytest.mark.parametrize("damage", ["other", "more", "less"])
def test_s16_a_file_that_is_not_the_pinned_one_is_not_used(tmp_path, repository, said, damage):
    group = Group(name="it", pins=("org.example:water:1.0",))
    sums = sums_of(group, tmp_path)
    if damage == "other":
        sums["it/wheel-1.0.jar"] = "0" * 64
    elif damage == "more":
        del sums["it/wheel-1.0.jar"]
    else:
        sums["it/dam-1.0.jar"] = "0" * 64

    with pytest.raises(NeedsOperator, match=r"jars/it/(wheel|dam)-1\.0\.jar") as caught:
        jars.fetch(group, tmp_path / "jars", said, sums)

    assert "do not use it" in caught.value.hint
    assert not (tmp_path / "jars" / "it").exists()


def test_s16_a_folder_that_somebody_filled_is_compared_once_and_another_file_in_it_replaced(
    tmp_path, repository, said, monkeypatch
):
    """Sizes alone were compared: a mounted folder was used whatever its jars held."""
    group = Group(name="it", pins=("org.example:water:1.0",))
    sums = sums_of(group, tmp_path)
    jars.fetch(group, tmp_path / "jars", said, sums)
    target = tmp_path / "jars" / "it"
    good = (target / "wheel-1.0.jar").read_bytes()
    # Given a jar of the same size with another content, its time a moment later,
    (target / "wheel-1.0.jar").write_bytes(good[:-1] + b"x")

    jars.fetch(group, tmp_path / "jars", said, sums)

    assert (target / "wheel-1.0.jar").read_bytes() == good
    assert "jars/it: wheel-1.0.jar is not the file that is pinned" in said.file.getvalue()
    # and what was compared is not read again.
    jars.fetch(group, tmp_path / "jars", said, sums)
    monkeypatch.setattr(jars.hashlib, "sha256", None)
    jars.fetch(group, tmp_path / "jars", said, sums)


def test_group_is_fetched_with_what_it_needs_once_and_repaired(tmp_path, repository, said):
    # Given a group with an override, and a fetch that was cut off.
    group = Group(name="it", pins=("org.example:water:1.0",), overrides=("org.example:sluice:2.0",))
    target = tmp_path / "jars" / "it"
    (tmp_path / "jars" / "it.partial").mkdir(parents=True)
    (tmp_path / "jars" / "it.partial" / "junk-1.jar").write_bytes(b"junk")

    # When it is fetched, then everything is there, a jar that is packaged as a bundle too.
    sums = sums_of(group, tmp_path)
    jars.fetch(group, tmp_path / "jars", said, sums)
    complete = {"sluice-2.0.jar", "water-1.0.jar", "wheel-1.0.jar"}
    assert {it.name for it in target.glob("*.jar")} == complete

    # When a jar is lost, then the next fetch brings it back.
    (target / "wheel-1.0.jar").unlink()
    jars.fetch(group, tmp_path / "jars", said, sums)
    assert {it.name for it in target.glob("*.jar")} == complete

    # When nothing is missing, then nothing is fetched.
    (repository / "org").rename(repository / "moved")
    jars.fetch(group, tmp_path / "jars", said, sums)
    assert "complete, 3 files" in said.file.getvalue()


def test_archive_is_fetched_alone_and_unpacked(tmp_path, repository, said, monkeypatch):
    # Given an archive with a classifier in the repository.
    home = repository / "org/example/broker/1.0"
    home.mkdir(parents=True)
    with tarfile.open(home / "broker-1.0-bin.tar.gz", "w:gz") as archive:
        archive.add(__file__, "broker/bin/start")
        archive.add(__file__, "start.jar")
    group = Group(name="kafka", pins=("org.example:broker:1.0:bin",), extension="tar.gz")
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))

    # When it is fetched, then its files are there; when one next to a jar is lost, then it is not complete.
    jars.fetch(group, tmp_path, said, sums_of(group, tmp_path))
    start = jars.unpacked(group) / "broker/bin/start"
    assert start.read_bytes() == Path(__file__).read_bytes()
    start.unlink()
    with pytest.raises(NeedsOperator):
        jars.unpacked(group)


def test_excluded_jars_are_left_out(tmp_path, repository, said):
    group = Group(name="it", pins=("org.example:water:1.0",), excluded=("org.example:wheel",))

    jars.fetch(group, tmp_path / "jars", said, sums_of(group, tmp_path))

    assert {it.name for it in (tmp_path / "jars" / "it").glob("*.jar")} == {"water-1.0.jar", "sluice-1.0.jar"}


def test_unknown_pin_is_named(tmp_path, repository, said):
    group = Group(name="it", pins=("org.example:water:1.0", "org.example:fire:9"))

    with pytest.raises(NeedsOperator, match=r"org\.example#fire;9") as caught:
        jars.fetch(group, tmp_path / "jars", said, {})

    assert "water" not in caught.value.message
    assert not (tmp_path / "jars" / "it").exists()


def test_unreachable_repository_is_told_from_a_wrong_pin(tmp_path, monkeypatch, said):
    use(monkeypatch, tmp_path, "http://127.0.0.1:9/")
    group = Group(name="it", pins=("org.example:water:1.0",))

    with pytest.raises(NotConnected, match="cannot be reached") as caught:
        jars.fetch(group, tmp_path / "jars", said, {})

    assert "network" in caught.value.hint
