"""The routers' configurations: syntax, attributes that the router knows, TLS everywhere, each source its own address alone."""

import json
import re
from pathlib import Path

import pytest

from headrace.configuration.value_types import SOURCE_NAME

ROUTERS = Path(__file__).parents[3] / "infra" / "router"
FILES = sorted(ROUTERS.glob("*.conf"))
#: Of skupper-router's schema (skrouter.json), as far as they are used here.
KNOWN = {
    "router": {"id", "mode", "workerThreads", "timestampsInUTC", "defaultDistribution"},
    "sslProfile": {"name", "caCertFile", "certFile", "privateKeyFile", "uidFormat", "password"},
    "listener": {
        "name",
        "host",
        "port",
        "role",
        "sslProfile",
        "requireSsl",
        "authenticatePeer",
        "saslMechanisms",
        "initialHandshakeTimeoutSeconds",
        "idleTimeoutSeconds",
        "maxFrameSize",
        "linkCapacity",
        "policyVhost",
    },
    "connector": {"name", "host", "port", "role", "sslProfile", "saslMechanisms", "maxFrameSize", "linkCapacity"},
    "address": {"prefix", "pattern", "distribution"},
    "policy": {"enableVhostPolicy", "policyDir", "maxConnections"},
}
ROLES = {"normal", "inter-router", "edge"}


def sections(path):
    """Return the sections of a file: (kind, attributes). Raises AssertionError for what is none."""
    results, kind, attributes = [], None, {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if opened := re.fullmatch(r"(\w+) \{", text):
            assert kind is None, f"{path.name}:{number}: a section in a section"
            kind, attributes = opened[1], {}
        elif text == "}":
            assert kind is not None, f"{path.name}:{number}"
            results.append((kind, attributes))
            kind = None
        else:
            given = re.fullmatch(r"(\w+): (\S.*)", text)
            assert given, f"{path.name}:{number}: {text}"
            assert kind is not None, f"{path.name}:{number}: outside of a section"
            assert given[1] not in attributes, f"{path.name}:{number}: twice"
            attributes[given[1]] = given[2]
    assert kind is None, f"{path.name}: a section is not closed"
    return results


def of_kind(path, kind):
    return [attributes for each, attributes in sections(path) if each == kind]


def vhosts():
    made = {}
    for path in sorted((ROUTERS / "policy").glob("*.json")):
        for kind, attributes in json.loads(path.read_text()):
            assert kind == "vhost"
            made[attributes["hostname"]] = attributes
    return made


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_attribute_is_one_that_the_router_knows(path):
    for kind, attributes in sections(path):
        assert set(attributes) <= KNOWN[kind], kind
    assert [each["mode"] for each in of_kind(path, "router")] == [path.name.partition("-")[0]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_everybody_is_authenticated_over_tls(path):
    profiles = {profile["name"]: profile for profile in of_kind(path, "sslProfile")}
    assert all(profile["uidFormat"] == "n" for profile in profiles.values())
    for attributes in of_kind(path, "listener"):
        if attributes.get("name") == "operators":
            continue
        assert attributes["sslProfile"] in profiles
        assert (attributes["requireSsl"], attributes["authenticatePeer"]) == ("yes", "yes")
        assert attributes["saslMechanisms"] == "EXTERNAL"
        assert attributes["role"] in ROLES
    for attributes in of_kind(path, "connector"):
        assert attributes["sslProfile"] in profiles
        assert attributes["role"] in ROLES
    (policy,) = of_kind(path, "policy")
    assert policy["enableVhostPolicy"] == "true"
    prefixes = ("cdc", "requests", "answers", "alerts")
    assert of_kind(path, "address") == [{"prefix": name, "distribution": "balanced"} for name in prefixes]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_r5_operators_reach_the_management_from_the_routers_own_machine_alone(path):
    # skstat, and `skmanage update --type sslProfile` after a renewal, need a listener with a policy of its own.
    (listener,) = [each for each in of_kind(path, "listener") if each.get("name") == "operators"]
    assert (listener["host"], listener["role"], listener["policyVhost"]) == ("127.0.0.1", "normal", "operators")
    (group,) = vhosts()["operators"]["groups"].values()
    assert (group["users"], group["remoteHosts"]) == ("anonymous", "127.0.0.1")
    # Management alone: no address with data in it.
    assert (group["targets"], "sources" in group) == ("$management, _topo/*", False)
    assert group["allowDynamicSource"]
    assert not group["allowAnonymousSender"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_r1_every_listener_names_its_policy_but_those_for_interior_routers(path):
    # The router applies its policy to the role `edge` too, and refuses everybody for whom no policy host is named.
    for attributes in of_kind(path, "listener"):
        policy = None if attributes["role"] == "inter-router" else attributes.get("policyVhost", "none")
        assert policy is None or policy in vhosts(), f"port {attributes['port']}: policyVhost is {policy}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_r3_links_between_interior_routers_trust_an_authority_of_their_own(path):
    authorities = {profile["name"]: profile["caCertFile"] for profile in of_kind(path, "sslProfile")}
    assert len(set(authorities.values())) == len(authorities)
    for kind in ("listener", "connector"):
        for attributes in of_kind(path, kind):
            if "sslProfile" not in attributes:
                continue
            between = authorities[attributes["sslProfile"]] != "/etc/headrace/certs/authority.pem"
            assert between == (attributes["role"] == "inter-router"), attributes


def test_r1_a_region_has_a_group_for_its_router_and_reaches_its_own_addresses_alone():
    regions = vhosts()["regions"]
    assert regions["allowUnknownUser"] is False
    for path in FILES:
        if not path.name.startswith("edge-"):
            continue
        (router,) = of_kind(path, "router")
        (profile,) = of_kind(path, "sslProfile")
        region = router["id"].removeprefix("edge-")
        group = regions["groups"][region]
        # The user is the common name of the router's certificate; its addresses for edges begin with the router's id.
        assert Path(profile["certFile"]).stem == group["users"]
        own = [router["id"], f"requests/{region}/*", f"alerts/{region}"]
        assert group["targets"].split(", ") == [f"cdc/{region}/*", f"answers/{region}/*", "_$qd.*", "mc/sfe.*"]
        assert group["sources"].split(", ") == [*own, "_$qd.*", "sfe.*", "vfcr.*"]
        assert not group["allowDynamicSource"]


def test_r8_no_group_has_a_limit_of_zero_which_means_no_limit():
    for vhost in vhosts().values():
        for name, group in vhost["groups"].items():
            assert "0" not in map(repr, group.values()), name


def test_a_region_only_connects_outwards_and_to_both_interior_routers():
    (edge,) = [path for path in FILES if path.name.startswith("edge-")]
    interior = {
        path.stem: {attributes["port"]: attributes["role"] for attributes in of_kind(path, "listener")}
        for path in FILES
        if path.name.startswith("interior-")
    }
    assert {attributes["role"] for attributes in of_kind(edge, "listener")} == {"normal"}
    connectors = of_kind(edge, "connector")
    assert {attributes["host"].partition(".")[0] for attributes in connectors} == set(interior)
    for attributes in connectors:
        assert interior[attributes["host"].partition(".")[0]][attributes["port"]] == attributes["role"] == "edge"


def test_the_interior_routers_meet():
    (there,) = of_kind(ROUTERS / "interior-b.conf", "connector")
    ports = {attributes["port"]: attributes["role"] for attributes in of_kind(ROUTERS / "interior-a.conf", "listener")}
    assert there["host"].startswith("interior-a.")
    assert ports[there["port"]] == there["role"] == "inter-router"


def test_a_source_sends_its_own_changes_and_answers_and_receives_its_own_requests_alone():
    sources = []
    for hostname, vhost in vhosts().items():
        assert vhost["allowUnknownUser"] is False
        if hostname in {"regions", "operators"}:
            # Routers, which carry the addresses of all edges of their region; and management, which has a test of its own.
            continue
        assert "$default" not in vhost["groups"]
        for name, group in vhost["groups"].items():
            assert not group["allowAnonymousSender"]
            assert not group["allowDynamicSource"]
            if name == "bridges":
                assert (group["targets"], group["sources"]) == ("requests/*, alerts/*", "cdc/*, answers/*")
                continue
            if name.endswith("-branches"):
                # A branch receives what is delivered to its own region, and sends nothing.
                region = name.removesuffix("-branches")
                assert (group["users"], group["sources"]) == (f"{region}-branch", f"alerts/{region}")
                assert "targets" not in group
                continue
            sources.append(group["users"])
            assert re.match(SOURCE_NAME, group["users"])
            assert group["targets"] == f"cdc/{group['users']}, answers/{group['users']}"
            assert group["sources"] == f"requests/{group['users']}"
    assert sorted(sources) == ["jakarta/bank", "london/bank"]


def test_the_policy_of_every_listener_is_there():
    named = {
        attributes["policyVhost"]
        for path in FILES
        for attributes in of_kind(path, "listener")
        if "policyVhost" in attributes
    }
    assert named == set(vhosts())
