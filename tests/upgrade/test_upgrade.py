"""A pipeline of the previous release under load is upgraded part by part, and taken back as far as docs/upgrading.md allows."""

import json
from pathlib import Path

import pytest

from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from tests.end_to_end.pipeline import HEADRACE, STREAM, Pipeline, Region, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually

REQUESTS = "[requests]\n"


def replace(part: Supervised, program: Path) -> None:
    """Stop a part with SIGTERM and start another release's in its place."""
    assert part.stop() == 0, part.tail()
    part.program = str(program)
    part.start()


def go_back(region: Region, former: Path) -> None:
    """Start the former release's edge, without what it does not know of the checkpoint, as docs/upgrading.md has it."""
    assert region.edge.stop() == 0, region.edge.tail()
    config = load(region.edge_file, EdgeFile)
    path = config.resolve(config.state.folder) / "checkpoint.json"
    checkpoint = json.loads(path.read_text())
    del checkpoint["last_commit"]
    path.write_text(json.dumps(checkpoint))
    region.edge.program = str(former)
    region.edge.start()


def start(pipeline: Pipeline, former: Path) -> None:
    """Start all of the former release, which knows no requests to edges."""
    pipeline.bridge_file.write_text(pipeline.bridge_file.read_text().replace(REQUESTS, ""))
    pipeline.start(program=former)


def allow_requests(pipeline: Pipeline) -> None:
    """Give the bridge requests to carry, as docs/upgrading.md has it once all edges are of this release."""
    pipeline.bridge_file.write_text(pipeline.bridge_file.read_text() + REQUESTS)
    headrace("bridge", "init", "--config", str(pipeline.bridge_file))
    replace(pipeline.bridge, HEADRACE)


def verify(pipeline: Pipeline) -> None:
    headrace("verify", "--config", str(pipeline.lake_file), STREAM)


@pytest.mark.timeout(1800)
def test_a_pipeline_under_load_is_upgraded_part_by_part_and_back(pipeline: Pipeline, former: Path) -> None:
    # Given a pipeline of the previous release, whose databases are written to all the time, and a load.
    start(pipeline, former)
    for region in pipeline.regions:
        region.workload.start()
    pipeline.wait_for_more(300)
    pipeline.load(former)
    # When bridge, lake and edges are replaced, in this order, and changes are loaded after each step.
    replace(pipeline.bridge, HEADRACE)
    pipeline.wait_for_more(300)
    pipeline.load(former)
    pipeline.load()
    pipeline.wait_for_more(300)
    for region in pipeline.regions:
        replace(region.edge, HEADRACE)
        pipeline.wait_for_more(300)
    pipeline.load()
    # And the former release's load ends with an error over what the present one has written; one edge goes back.
    with pytest.raises(AssertionError, match="KeyError: 'query'"):
        pipeline.load(former)
    go_back(pipeline.regions[0], former)
    pipeline.wait_for_more(300)
    pipeline.load()
    replace(pipeline.regions[0].edge, HEADRACE)
    pipeline.wait_for_more(300)
    allow_requests(pipeline)
    pipeline.wait_for_more(300)
    # Then every change is in Kafka once and in order, and the lake equals the databases.
    pipeline.stop_writers()
    pipeline.wait_until_drained()
    assert pipeline.differences() == {}
    pipeline.load()
    verify(pipeline)


@pytest.mark.timeout(900)
def test_an_upgrade_interrupted_by_kills_loses_nothing(pipeline: Pipeline, former: Path) -> None:
    # Given a pipeline of the previous release under load.
    start(pipeline, former)
    for region in pipeline.regions:
        region.workload.start()
    pipeline.wait_for_more(300)
    # When every part is killed and another release is started over what it left.
    for part in pipeline.parts:
        part.stop_at_once()
        part.program = str(HEADRACE)
        part.start()
        pipeline.wait_for_more(300)
    # And the former bridge is started over the present one's positions: it serves no source until an operator acts.
    assert pipeline.bridge.stop() == 0
    before = len(pipeline.records())
    pipeline.bridge.program = str(former)
    pipeline.bridge.start()
    for region in pipeline.regions:
        refusal = f"group headrace.{region.source} holds offsets that the bridge did not write"
        eventually(lambda text=refusal: text in pipeline.bridge.tail(1000), 60, saying=refusal)
    assert pipeline.bridge.stop() in {0, 3}
    assert len(pipeline.records()) == before
    pipeline.bridge.program = str(HEADRACE)
    pipeline.bridge.start()
    pipeline.wait_for_more(300)
    # Then every change is in Kafka once and in order.
    pipeline.stop_writers()
    pipeline.wait_until_drained()
    assert pipeline.differences() == {}
