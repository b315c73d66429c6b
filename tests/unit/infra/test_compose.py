"""docker-compose.yml without containers: the compose specification's rules, and that all it names is there and fits together."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml
from compose_spec import PyCompose

from headrace.command import root as headrace
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "infra" / "images"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"].startswith("headrace-"))
FILES = {"edge": EdgeFile, "bridge": BridgeFile, "lake": LakeFile}


def mounts(service):
    """Return the bind mounts and volumes of a service: what it finds there, by path."""
    return {target: source for source, target, *_ in (each.split(":") for each in service.get("volumes", []))}


def configuration(name):
    """Return the part and the loaded file of a service of ours, None for one without."""
    for target, source in mounts(SERVICES[name]).items():
        part = Path(target).stem
        if target.startswith("/etc/headrace/") and part in FILES and source.endswith(".toml"):
            return part, load(ROOT / source, FILES[part])
    return None


def subcommand(words):
    """Return the command of ours that these words lead to, and the arguments that are left."""
    command, context = headrace, click.Context(headrace)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


def test_the_file_keeps_the_compose_specification():
    # The parser knows the specification, not YAML's merging.
    assert set(PyCompose.from_yaml(yaml.safe_dump(COMPOSE)).service_names()) == set(SERVICES)


def test_an_unknown_field_would_be_refused():
    broken = {**COMPOSE, "services": {**SERVICES, "kafka": {**SERVICES["kafka"], "helthcheck": {}}}}
    with pytest.raises(ValueError, match="helthcheck"):
        PyCompose.from_yaml(yaml.safe_dump(broken))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_service_mounts_needs_and_waits_for_is_there(name):
    service = SERVICES[name]
    for source in mounts(service).values():
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
    assert set(service.get("networks", [])) <= set(COMPOSE["networks"])
    for other, condition in service.get("depends_on", {}).items():
        assert other in SERVICES
        if condition["condition"] == "service_healthy":
            assert "test" in SERVICES[other].get("healthcheck", {}), f"{other} never says that it is healthy"
        if condition["condition"] == "service_completed_successfully":
            assert SERVICES[other].get("restart", "no") == "no", f"{other} never ends"


@pytest.mark.parametrize("name", OURS)
def test_commands_of_ours_exist_with_their_options(name):
    words = SERVICES[name]["command"]
    if words[0] in {"airflow", "spark-class"}:
        return
    command, arguments = subcommand(words)
    context = command.make_context(name, list(arguments), resilient_parsing=False)
    for value in context.params.values():
        if isinstance(value, str) and value.startswith("/etc/headrace/"):
            assert value in mounts(SERVICES[name]), value


@pytest.mark.parametrize("name", [name for name in OURS if configuration(name)])
def test_files_are_valid_and_what_they_name_is_in_reach(name):
    part, file = configuration(name)
    volumes = mounts(SERVICES[name])
    reached = []
    if part == "lake":
        reached = [(source.postgresql.host, 5432) for source in file.sources.values()] if name == "airflow" else []
        spark = urlsplit(file.spark.master)
        reached.append((spark.hostname, spark.port))
        assert str(Path(file.root).parent) in volumes
    else:
        if "run" in SERVICES[name]["command"]:
            reached = [(urlsplit(url).hostname, urlsplit(url).port) for url in file.interconnect.urls]
        for path in (file.interconnect.authority, file.interconnect.certificate, file.interconnect.key):
            assert str(path.parent) in volumes
    if part == "edge":
        reached.append((file.source.postgresql.host, file.source.postgresql.port))
        assert file.state.folder in volumes
    else:
        host, _, port = file.kafka.bootstrap.partition(":")
        reached.append((host, int(port)))
    mine = set(SERVICES[name]["networks"])
    for host, port in reached:
        other = host_of(host)
        assert mine & set(SERVICES[other]["networks"]), f"{name} cannot reach {host}"
        assert port in ports(other), f"nothing of {other} listens on {port}"
    environment = SERVICES[name].get("environment", {})
    for variable in re.findall(r'"env:(\w+)"', Path(file.path).read_text()):
        assert variable in environment


def host_of(host):
    """Return the service behind a host name."""
    for name, service in SERVICES.items():
        networks = service.get("networks", {})
        aliases = (
            [alias for network in networks.values() for alias in network["aliases"]]
            if isinstance(networks, dict)
            else []
        )
        if host == name or host in aliases:
            return name
    raise AssertionError(f"no service is called {host}")


def ports(name):
    """Return the ports on which a service listens, by its own configuration."""
    service = SERVICES[name]
    if service["image"].startswith("postgres:"):
        return {5432}
    if name == "kafka":
        return {int(port) for port in re.findall(r"://:(\d+)", service["environment"]["KAFKA_LISTENERS"])}
    if name == "artemis":
        return {int(port) for port in re.findall(r"headrace\.port=(\d+)", service["entrypoint"][-1])}
    if name == "spark":
        return {int(service["command"][-1])}
    conf = (ROOT / mounts(service)["/etc/headrace/router/router.conf"]).read_text()
    return {int(port) for port in re.findall(r"listener \{[^}]*?port: (\d+)", conf)}


def test_certificates_are_made_for_all_who_need_one():
    made = {"authority.pem", "authority.key"}
    for word in SERVICES["certs"]["command"]:
        if found := re.match(r"--(?:source|client|server)=([^=]+)", word):
            name = found[1].replace("/", "-")
            made |= {f"{name}.pem", f"{name}.key"}
        if found := re.match(r"--interior-router=([^=]+)", word):
            made |= {"routers/authority.pem", f"routers/{found[1]}.pem", f"routers/{found[1]}.key"}
    used = set()
    for service in SERVICES.values():
        for source in mounts(service).values():
            if source.startswith("./infra/") and (ROOT / source).is_file():
                used |= set(re.findall(r"/certs/([\w./-]+\.(?:pem|key))", (ROOT / source).read_text()))
        used |= set(re.findall(r"/certs/([\w.-]+\.(?:pem|key))", " ".join(service.get("entrypoint", []))))
    assert {"bridge.pem", "jakarta-bank.key", "interior-a.pem", "routers/interior-b.key", "artemis.key"} <= used <= made


def test_regions_reach_nothing_by_themselves():
    for region in ("jakarta", "london"):
        assert COMPOSE["networks"][region]["internal"]
        assert "ports" not in SERVICES[f"{region}-database"]
        assert SERVICES[f"{region}-database"]["networks"] == [region]


def test_variables_of_ours_are_read_by_the_code():
    sources = "".join(
        path.read_text() for part in ("headrace", "dags", "spark_jobs") for path in (ROOT / part).rglob("*.py")
    )
    named = {name for each in OURS for name in SERVICES[each].get("environment", {}) if name.startswith("HEADRACE_")}
    assert named
    for name in named:
        assert name in sources


@pytest.mark.parametrize("part", ["edge", "bridge", "lake"])
def test_images_are_small_in_rights_checked_and_made_of_what_is_here(part):
    text = (IMAGES / f"{part}.Dockerfile").read_text()
    assert re.findall(r"^USER (.+)", text, re.MULTILINE)[-1] == "headrace"
    assert re.search(r"^HEALTHCHECK", text, re.MULTILINE)
    assert "--require-hashes" in text
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


@pytest.mark.parametrize("part", ["edge", "bridge"])
def test_images_hold_what_their_part_needs_at_the_versions_of_the_project(part):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    image = dict(re.findall(r"^([\w.-]+)==(\S+)", (IMAGES / f"{part}.txt").read_text(), re.MULTILINE))
    wanted = [*project["dependencies"], *project["optional-dependencies"][part]]
    names = {re.match(r"[\w-]+", each)[0].lower() for each in wanted}
    assert names <= set(image)
    assert "pyspark" not in image
    assert image.items() <= pinned.items()


@pytest.mark.parametrize(("part", "kind"), [("edge", EdgeFile), ("bridge", BridgeFile)])
def test_health_checks_ask_where_the_part_answers(part, kind):
    (asked,) = re.findall(r"http://127\.0\.0\.1:(\d+)/health/live", (IMAGES / f"{part}.Dockerfile").read_text())
    for name in OURS:
        found = configuration(name)
        if found is not None and isinstance(found[1], kind):
            assert found[1].metrics.listen.rpartition(":")[2] == asked
