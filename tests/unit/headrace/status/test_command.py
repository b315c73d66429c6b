"""Who is asked, and what is said when nobody answers."""

import http.server
import threading

import msgspec
import pytest

from headrace.errors import ConfigurationError
from headrace.status import command
from headrace.status.answer import Answer, SourceStatus, refused_inputs
from infra.local.server import free_port

EDGE = """
[source]
name = "jakarta/bank"
[source.postgresql]
host = "db"
database = "bank"
user = "headrace"
[interconnect]
url = "amqp://far:5672"
[state]
folder = "state"
"""


@pytest.fixture
def edge(tmp_path, monkeypatch):
    """Return what writes an edge's file; what is durable is made up."""
    durable = [SourceStatus(source="jakarta/bank", state="not running")]
    monkeypatch.setattr(command, "_find_status_reader", lambda part: lambda file: durable if part == "edge" else [])

    def write(listen=None):
        path = tmp_path / "edge.toml"
        path.write_text(EDGE + (f'[metrics]\nlisten = "{listen}"\n' if listen else ""))
        return path

    return write


@pytest.fixture
def stranger(request):
    """Yield the address of a server that answers something else, or what the test names."""
    body = getattr(request, "param", b"hello")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        (None, "[metrics] listen is not in the file"),
        ("127.0.0.1:0", "--at"),
        (f"127.0.0.1:{free_port()}", "nobody answers at"),
    ],
)
def test_where_nobody_can_be_asked_what_is_durable_is_shown_with_the_reason(edge, listen, why):
    answer = command.fetch(edge(listen))
    assert not answer.running
    assert why in answer.reason
    assert [source.state for source in answer.sources] == ["not running"]


def test_of_bridges_that_share_sources_each_source_is_shown_once_as_its_own_bridge_sees_it(monkeypatch, edge):
    def asked(listen):
        state = {"a:1": "serving", "b:1": "elsewhere", "d:1": "waiting for Kafka"}.get(listen)
        sources = [SourceStatus(source="jakarta/bank", state=state)] if state else []
        answer = Answer(part="bridge", running=True, ready=True, reason="fine", address=listen, sources=sources)
        return (answer, "") if state else (None, f"nobody answers at {listen}")

    monkeypatch.setattr(command, "answer_of", asked)
    for order in (("a:1", "b:1"), ("b:1", "a:1"), ("a:1", "d:1"), ("d:1", "a:1")):
        answer = command.fetch(edge(), order)
        assert [source.state for source in answer.sources] == ["serving"]
        assert answer.ready
    answer = command.fetch(edge(), ("a:1", "c:1"))
    assert not answer.ready
    assert "nobody answers at c:1" in answer.reason


def test_a_source_that_all_bridges_have_elsewhere_is_not_served(monkeypatch, edge):
    """Each left it to another one, which had no such source in its file, and status showed nothing wrong."""

    def asked(listen):
        sources = [SourceStatus(source="jakarta/bank", state="elsewhere")]
        answer = Answer(part="bridge", running=True, ready=True, address=listen, sources=sources)
        return (answer, "") if listen != "c:1" else (None, "nobody answers at c:1")

    monkeypatch.setattr(command, "answer_of", asked)
    for addresses in (("a:1", "b:1"), ("a:1", "c:1")):
        (source,) = command.fetch(edge(), addresses).sources
        assert (source.state, "no bridge that answers serves it" in source.reason) == ("not served", True)
    # There is another one that was not asked.
    assert [source.state for source in command.fetch(edge(), ("a:1",)).sources] == ["elsewhere"]


def test_of_bridges_that_share_sources_what_a_sender_had_refused_is_added():
    def answer(count):
        return Answer(part="bridge", running=True, refused=refused_inputs({"batch": {"oslo/rogue": count}}))

    (refused,) = command._merge([answer(2), answer(5)], []).refused
    assert (refused.sender, refused.door, refused.count) == ("oslo/rogue", "batch", 7)


def test_an_answer_of_something_else_is_not_taken_for_one(edge, stranger):
    answer = command.fetch(edge(), (stranger,))
    assert not answer.running
    assert "is no part of Headrace" in answer.reason


@pytest.mark.parametrize("stranger", [msgspec.json.encode(Answer(part="bridge", running=True))], indirect=True)
def test_an_answer_that_is_too_large_is_not_read_whole(edge, stranger, monkeypatch):
    """S8: whoever answers at the address could have a console keep any number of bytes."""
    assert command.fetch(edge(), (stranger,)).running
    monkeypatch.setattr(command, "_LARGEST_ANSWER", 20)
    answer = command.fetch(edge(), (stranger,))
    assert not answer.running
    assert "is no part of Headrace" in answer.reason


def test_a_file_that_is_neither_an_edge_s_nor_a_bridge_s_is_refused(tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text('[lake]\nroot = "x"\n')
    with pytest.raises(ConfigurationError, match="neither an edge's nor a bridge's"):
        command.fetch(path)
