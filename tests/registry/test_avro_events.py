"""Changes in Avro with the headers of CloudEvents, next to the registry's ids."""

from tests.kafka.reading import read_committed
from tests.registry.test_registry import SOURCE, TABLES, started, values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def test_changes_in_avro_are_events(database, edges, kafka, topic, inside, tmp_path, registry, consumed):
    bridge, name = started(kafka, topic, inside, tmp_path, registry.url)
    database.execute(TABLES)
    records = '[records]\nformat = "avro"\ncloudevents = true\nkey_change = "delete-create"\ntombstones = true'
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=records)
    edge.init()
    with edge.running():
        database.execute("insert into accounts (id, owner) select n, 'Ana' from generate_series(1, 50) n")
        database.execute("update accounts set id = 100 where id = 50")
        database.execute("select pg_logical_emit_message(true, 'headrace.marker', 'end')")
        eventually(lambda: b'"op":"m"' in b"".join(values(kafka, name)), 120, every=0.2, saying="all is in Kafka")

    result = read_committed(kafka.bootstrap, f"{name}.public.accounts")
    headers = [{header: value.decode() for header, value in record.headers or []} for record in result if record.value]
    read = [value for _, value in consumed(f"{name}.public.accounts") if value]
    assert [each["ce_id"].removesuffix("-create") for each in headers] == [it["source"]["position"] for it in read]
    assert len({each["ce_id"] for each in headers}) == len(read) == 52
    kinds = {"c": "headrace.change.create", "d": "headrace.change.delete"}
    assert [each["ce_type"] for each in headers] == [kinds[it["op"]] for it in read]
    assert {(each["ce_source"], each["ce_subject"], each["content-type"]) for each in headers} == {
        (f"/headrace/{SOURCE}", "public.accounts", "application/avro")
    }
    tombstones = [record.headers for record in result if record.value is None]
    assert [[header for header, _ in each] for each in tombstones] == [["__debezium.newkey"]]
