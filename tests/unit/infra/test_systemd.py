"""The systemd units: what they start exists, what must not be started again is not, and systemd's own judgement of them."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from headrace import errors
from headrace.command import root as headrace

FOLDER = Path(__file__).parents[3] / "infra" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
#: Exit codes that another start cannot change (docs/trouble.md).
FINAL = {kind.exit_code for kind in (errors.ConfigurationError, errors.NeedsOperator, errors.CorruptInput)}
#: Tenths of systemd's exposure level: 0 is none, 100 all. Network, and a user that no unit file alone makes, are some 11.
EXPOSURE = 15


def service(path):
    """Return the settings of a unit's section [Service]; the last one where a setting is repeated."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser["Service"]


def test_there_is_a_unit_for_each_part_that_runs_for_ever():
    assert [path.name for path in UNITS] == ["headrace-bridge@.service", "headrace-edge@.service"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_not_started_again_after_an_exit_code_that_stays(path):
    given = service(path)
    assert {int(code) for code in given["RestartPreventExitStatus"].split()} == FINAL
    assert given["Restart"] == "on-failure"
    assert errors.UNEXPECTED not in FINAL


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_command_of_a_unit_exists_with_its_options(path):
    program, part, *words = service(path)["ExecStart"].split()
    assert program == "/opt/headrace/bin/headrace"
    assert part == re.fullmatch(r"headrace-(\w+)@\.service", path.name)[1]
    group = headrace.get_command(click.Context(headrace), part)
    command = group.get_command(click.Context(group), words[0])
    assert "/etc/headrace/%i.toml" in map(str, command.make_context("run", words[1:]).params.values())


def recipe():
    """Return the commands of docs/deploy.md for systemd, one a line."""
    text = (FOLDER.parents[1] / "docs" / "deploy.md").read_text().partition("## systemd")[2].partition("\n## ")[0]
    texts = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join(texts).replace("\\\n", " ").splitlines()


def test_the_printed_recipe_makes_what_the_units_and_init_need():
    """Q8, V14: `edge init` could neither make its state folder nor read the passwords."""
    lines = recipe()
    for line in lines:
        for name in re.findall(r"infra/systemd/\S+", line):
            assert (FOLDER.parents[1] / name).is_file(), name
    made = {
        line.split()[1]: line.split()[2:5] for line in FOLDER.joinpath("headrace.tmpfiles").read_text().splitlines()[1:]
    }
    assert made == {
        "/etc/headrace": ["0750", "root", "headrace"],
        "/var/lib/headrace": ["0700", "headrace", "headrace"],
    }
    (init,) = (line for line in lines if "edge init" in line)
    edge = service(FOLDER / "headrace-edge@.service")
    assert f"--uid={edge['User']} " in init
    assert f"--property=EnvironmentFile={edge['EnvironmentFile'].replace('%i', 'jakarta-bank')} " in init
    assert Path("/var/lib", edge["StateDirectory"]).parent == Path("/var/lib/headrace")
    places = [
        next(at for at, line in enumerate(lines) if word in line) for word in ("sysusers", "tmpfiles", "edge init")
    ]
    assert places == sorted(places)


# Where there is no systemd, nothing can judge the files; the rules above are checked everywhere.
if shutil.which("systemd-analyze"):

    @pytest.fixture(params=UNITS, ids=lambda path: path.name)
    def installed(request, tmp_path):
        """A unit as it is installed, of a program that is there."""
        copy = tmp_path / request.param.name
        copy.write_text(request.param.read_text().replace("/opt/headrace/bin/headrace", shutil.which("true")))
        return copy

    def analyze(*words):
        return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False, timeout=60)

    def test_systemd_takes_the_unit_without_a_warning(installed):
        done = analyze("verify", "--man=no", installed)
        # Other units of the machine are looked at, too.
        assert [line for line in done.stderr.splitlines() if "headrace" in line] == []
        assert done.returncode == 0, done.stderr

    def test_a_setting_that_systemd_does_not_know_would_be_found(installed):
        installed.write_text(installed.read_text().replace("RemoveIPC=", "RemoveICP="))
        assert "RemoveICP" in analyze("verify", "--man=no", installed).stderr

    def test_systemd_finds_the_unit_hardened(installed):
        done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager", installed)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize("kind", ["sysusers", "tmpfiles"])
    def test_systemd_takes_the_files_of_the_recipe(kind, tmp_path):
        for name in ("sysusers", "tmpfiles"):
            folder = tmp_path / "usr" / "lib" / f"{name}.d"
            folder.mkdir(parents=True)
            shutil.copy(FOLDER / f"headrace.{name}", folder / "headrace.conf")
        (tmp_path / "etc").mkdir()
        words = {"sysusers": [], "tmpfiles": ["--create", "headrace.conf"]}
        # The folders' owner is a user of the first.
        for each in ("sysusers", "tmpfiles")[: 1 + (kind == "tmpfiles")]:
            command = [f"systemd-{each}", f"--root={tmp_path}", *words[each]]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            unprivileged = os.geteuid() != 0 and "Operation not permitted" in done.stderr
            assert done.returncode == 0 or (each == "tmpfiles" and unprivileged), done.stderr
        assert "headrace:" in (tmp_path / "etc" / "passwd").read_text()
