"""What the console takes of bronze's own notes, from a lake of hand-written Delta logs."""

import json

from headrace.console.lake import Lake
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Base, Held, Progress
from tests.unit.headrace.lake.test_lake import Table, field, metadata


def test_offsets_of_many_topics_are_those_that_changed_on_those_of_the_note_that_is_named(tmp_path):
    """The note of a commit that has the changes of hundreds of topics ended each look, and no page of the lake had anything."""
    bronze = Table(tmp_path, "bronze/bank")
    topics = {f"bank.t{number}": Held({0: number}, f"id {number}") for number in range(200)}
    whole = Progress(topics=topics)

    def commit(note, *actions):
        bronze.commit(*actions)
        file = bronze.log / f"{bronze.version:020d}.json"
        named = json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": note}})
        file.write_text("\n".join([named, *file.read_text().splitlines()[1:]]))

    columns = metadata(field("value", "string"), format={"provider": "parquet", "options": {}})
    commit(
        offsets.note("bank", whole, commit="first"),
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        columns,
    )
    now = Progress(topics=topics | {"bank.t7": Held({0: 70, 1: 5}, "id 7")})
    commit(offsets.note("bank", now, commit="second", base=Base(0, "first", 0.0, topics)))
    lake = Lake(str(tmp_path), {"bank": None})

    lake.look()

    found = lake.view().offsets["bank"]
    assert len(found) == 201
    assert (found["bank.t7", 0], found["bank.t7", 1], found["bank.t8", 0]) == (70, 5, 8)

    # and where that is another commit by now, nothing is known
    commit(offsets.note("bank", now, commit="third", base=Base(0, "of another bronze", 0.0, topics)))
    lake.look()
    assert lake.view().offsets == {}
