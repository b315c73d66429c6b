"""Identity on the interconnect, over real TLS: who is let in, for what, and what is said to those who are not."""

import shutil

import pytest

from bridge.amqp import connections
from headrace.amqp import security
from headrace.amqp.transport import SSLDomain
from headrace.certificates.command import Authority
from headrace.configuration.bridge import Interconnect
from headrace.errors import ConfigurationError, NeedsOperator
from tests.amqp.interconnect_ends import START, Edge, Far, at, pem, sealed
from tests.amqp.peer import Peer
from tests.hostile.old_tls import OldServer, assert_old_versions_are_refused
from tests.rules.waiting import eventually


@pytest.fixture
def fars():
    made = []

    def start(*arguments, **settings):
        made.append(Far(*arguments, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def edges():
    made = []

    def start(*arguments, **settings):
        made.append(Edge(*arguments, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def ours(certificates):
    return certificates / "ours"


@pytest.fixture
def far(fars, ours):
    return fars(("jakarta/bank", "london/bank"), **pem(ours, "bridge"), identities={"edge-3": ["london/*"]})


def secure(far):
    return far.url(scheme="amqps", host="localhost")


def test_a_source_sends_with_its_own_certificate(far, edges, ours):
    edge = edges(secure(far), **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 3))
    edge.acknowledged(at(3))
    assert far.numbers["jakarta/bank"] == [1, 2, 3]


def test_a_connection_that_was_up_is_not_reported_as_ended_during_the_handshake(far, edges, ours, proxies, caplog):
    """OpenSSL has the same reason for both (R11)."""
    wire = proxies("127.0.0.1", far.receiver.port)
    edge = edges(f"amqps://localhost:{wire.port}", **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 3))
    edge.acknowledged(at(3))

    wire.stop()
    eventually(lambda: "unexpected eof" in caplog.text, saying="OpenSSL's reason is logged")
    wire.start()
    edge.put(sealed(4, 4))
    edge.acknowledged(at(4))

    assert not [line for line in caplog.messages if "handshake" in line]


def test_a_certificate_of_another_source_is_refused_and_both_are_named(far, edges, ours, caplog):
    edge = edges(secure(far), **pem(ours, "london-bank"))
    edge.put(sealed(1, 3))

    problem = edge.problem()

    assert isinstance(problem, NeedsOperator)
    assert "does not let this edge send to cdc/jakarta/bank" in problem.message
    assert "amqp:unauthorized-access" in problem.message
    (said,) = [line for line in caplog.messages if "refused" in line]
    assert "'cdc/jakarta/bank'" in said
    assert "'london/bank'" in said
    assert "127.0.0.1:" in said
    assert far.numbers["jakarta/bank"] == []


def test_the_bridge_s_file_may_say_for_what_else_a_certificate_is(far, edges, ours):
    allowed = edges(secure(far), source="london/bank", **pem(ours, "edge-3"))
    allowed.put(sealed(1, 2, source="london/bank"))
    allowed.acknowledged(at(2))
    other = edges(secure(far), **pem(ours, "edge-3"))
    assert "amqp:unauthorized-access" in str(other.problem())


def test_a_certificate_that_the_file_revokes_loses_its_open_links_and_gets_no_new_one(far, edges, ours):
    """Revoking an edge is one line and SIGHUP: open links stayed until they were closed."""
    revoked = edges(secure(far), **pem(ours, "jakarta-bank"))
    kept = edges(secure(far), source="london/bank", **pem(ours, "edge-3"))
    revoked.put(sealed(1, 3))
    kept.put(sealed(1, 3, source="london/bank"))
    revoked.acknowledged(at(3))
    kept.acknowledged(at(3))

    rules = {"edge-3": ["london/*"], "jakarta/bank": []}
    far.receiver.use(
        ("jakarta/bank", "london/bank"), Interconnect(listen="x:0", **pem(ours, "bridge"), identities=rules)
    )

    problem = revoked.problem()
    assert isinstance(problem, NeedsOperator)
    assert "does not let this edge send to cdc/jakarta/bank" in problem.message
    kept.put(sealed(4, 5, source="london/bank"))
    kept.acknowledged(at(5))
    assert kept.figures.interconnect_connections == 1
    assert "amqp:unauthorized-access" in str(edges(secure(far), **pem(ours, "jakarta-bank")).problem())


def test_a_certificate_that_expires_while_connected_does_not_outlast_its_connection(
    far, edges, ours, monkeypatch, caplog
):
    monkeypatch.setattr(connections, "LONGEST_SECONDS", 8.0)
    kept = edges(secure(far), source="london/bank", **pem(ours, "london-bank"))
    Authority(ours).client("jakarta/bank", days=7 / 86_400)
    expiring = edges(secure(far), **pem(ours, "jakarta-bank"))
    for edge, source in ((expiring, "jakarta/bank"), (kept, "london/bank")):
        edge.put(sealed(1, 3, source=source))
        edge.acknowledged(at(3))

    eventually(lambda: "its certificate has expired" in caplog.text, saying="it is not let in again")
    expiring.put(sealed(4, 5))
    kept.put(sealed(4, 5, source="london/bank"))
    kept.acknowledged(at(5))
    assert far.receiver.links.credit.of("jakarta/bank") is None
    assert far.numbers["jakarta/bank"] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.:DeprecationWarning")
def test_versions_of_tls_before_1_2_are_refused(far, ours):
    """S13."""
    client = {"certificate": ours / "jakarta-bank.pem", "key": ours / "jakarta-bank.key"}
    assert_old_versions_are_refused(far.receiver.port, **client)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.:DeprecationWarning")
def test_an_edge_speaks_no_tls_before_1_2(edges, ours):
    """S13, at the other end."""
    server = OldServer(ours / "bridge.pem", ours / "bridge.key")
    try:
        edges(f"amqps://localhost:{server.port}", **pem(ours, "jakarta-bank"))
        eventually(lambda: server.refusals, saying="the handshake has ended")
        assert server.served == 0
    finally:
        server.close()


def test_a_second_link_for_another_source_on_a_good_connection_is_refused(far, ours):
    intruder = Intruder(secure(far), ours, ["cdc/jakarta/bank", "cdc/london/bank"])
    intruder.start()
    intruder.join()
    assert intruder.opened == {"cdc/jakarta/bank"}
    assert intruder.refused == {"cdc/london/bank": "amqp:unauthorized-access"}


@pytest.mark.parametrize("options", [{"sasl_enabled": False}, {"allowed_mechs": "ANONYMOUS"}])
def test_who_skips_authentication_is_still_known_by_certificate_or_not_let_in(far, ours, options):
    intruder = Intruder(secure(far), ours, ["cdc/london/bank"], **options)
    intruder.start()
    intruder.join()
    assert intruder.opened == set()


class Intruder(Peer):
    """Has the certificate of jakarta/bank, and attaches to addresses of its choice."""

    def __init__(self, url, folder, addresses, **options):
        super().__init__()
        self._url, self._addresses, self._options = url, addresses, options
        self.opened, self.refused = set(), {}
        self._tls = SSLDomain(SSLDomain.MODE_CLIENT)
        files = pem(folder, "jakarta-bank")
        self._tls.set_trusted_ca_db(str(files["authority"]))
        self._tls.set_credentials(str(files["certificate"]), str(files["key"]), None)

    def on_start(self, event):
        options = {"allowed_mechs": "EXTERNAL"} | self._options
        connection = self.loop.connect(self._url, trusted=self._tls, credentials=options)
        for address in self._addresses:
            self.loop.attach_sender(connection, address, address)

    def on_sendable(self, event):
        self.opened.add(event.link.target.address)
        self._end(event)

    def on_link_error(self, event):
        self.refused[event.link.target.address] = event.link.remote_condition.name
        self._end(event)

    def _end(self, event):
        if len(self.opened) + len(self.refused) == len(self._addresses):
            event.connection.close()

    def on_transport_closed(self, event):
        self.loop.stop()


def test_without_a_certificate_nobody_is_let_in(far, edges, ours, caplog):
    edges(secure(far), authority=ours / "authority.pem")
    eventually(lambda: "requires a client certificate. Give [interconnect] certificate and key" in caplog.text)
    eventually(lambda: "showed no client certificate" in caplog.text)


def test_a_certificate_of_another_authority_is_refused_and_both_sides_say_so(far, edges, certificates, ours, caplog):
    foreign = pem(certificates / "theirs", "jakarta-bank") | {"authority": ours / "authority.pem"}
    edges(secure(far), **foreign)
    eventually(lambda: "does not know the authority of this side's certificate" in caplog.text)
    eventually(lambda: f"is of none of the authorities in {ours}/authority.pem" in caplog.text)


def test_a_certificate_that_has_expired_is_refused_and_named_here_before(far, edges, certificates, ours, caplog):
    late = {
        "authority": ours / "authority.pem",
        "certificate": certificates / "late.pem",
        "key": certificates / "late.key",
    }
    edges(secure(far), **late)
    eventually(lambda: "finds this side's certificate expired" in caplog.text)
    assert f"the certificate in {certificates}/late.pem expired on" in caplog.text


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("expired", "its certificate has expired. It must be renewed there"),
        ("elsewhere", "its certificate is not for the name 'localhost'"),
        # A source's certificate does not make a bridge.
        ("jakarta-bank", "unsuitable certificate purpose"),
    ],
)
def test_a_far_side_that_is_not_to_be_trusted_gets_nothing_and_the_reason_is_said(
    fars, edges, ours, caplog, server, says
):
    far = fars(**pem(ours, server))
    edge = edges(secure(far), **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 1))
    eventually(lambda: says in caplog.text, saying=says)
    assert far.numbers["jakarta/bank"] == []


def test_a_far_side_of_another_authority_is_not_trusted(fars, edges, certificates, ours, caplog):
    far = fars(**pem(ours, "bridge"))
    edges(secure(far), authority=certificates / "theirs" / "authority.pem")
    eventually(lambda: "comes from none of the authorities that are trusted here" in caplog.text)


def test_an_edge_without_tls_at_a_port_with_it_and_the_reverse(far, fars, edges, ours, caplog):
    problem = edges(far.url()).problem()
    assert "does not let this edge in" in problem.message
    assert "whether it needs an amqps:// address" in problem.hint
    plain = fars()
    edges(secure(plain), authority=ours / "authority.pem")
    eventually(lambda: "does the port speak TLS?" in caplog.text)
    assert [number for far in (far, plain) for number in far.numbers["jakarta/bank"]] == []


def test_a_renewed_certificate_of_the_bridge_is_shown_to_who_comes_next(fars, edges, ours, monkeypatch, caplog):
    monkeypatch.setattr(security, "CERTIFICATE_SECONDS", 0.05)
    caplog.set_level("INFO")
    far = fars(("jakarta/bank", "london/bank"), **pem(ours, "bridge"))
    before = edges(secure(far), **pem(ours, "jakarta-bank"))
    before.put(sealed(1, 1))
    before.acknowledged(at(1))
    # when it is renewed, by another authority, for another name
    shutil.rmtree(ours.parent / "fresh", ignore_errors=True)
    fresh = Authority(ours.parent / "fresh")
    fresh.server("bridge", ["localhost"])
    for name in ("bridge.pem", "bridge.key"):
        shutil.copy(fresh.folder / name, ours / name)
    eventually(lambda: "the certificates were renewed" in caplog.text)
    # then the open connection goes on, and the next one is shown the new certificate
    before.put(sealed(2, 2))
    before.acknowledged(at(2))
    trusting = pem(ours, "london-bank") | {"authority": fresh.certificate_file}
    after = edges(secure(far), source="london/bank", **trusting)
    after.put(sealed(1, 1, source="london/bank"))
    after.acknowledged(at(1))
    assert before.figures.interconnect_connections == 1


def test_an_edge_connects_anew_with_a_renewed_certificate(fars, edges, ours, monkeypatch, caplog):
    monkeypatch.setattr(security, "CERTIFICATE_SECONDS", 0.05)
    far = fars(**pem(ours, "bridge"))
    edge = edges(secure(far), **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    # when the key comes first, and fits no certificate for a moment
    renewed = Authority(ours.parent / "renewed-by-the-same")
    for name in ("authority.pem", "authority.key"):
        shutil.copy(ours / name, renewed.folder / name)
    renewed = Authority(renewed.folder)
    renewed.client("jakarta/bank")
    shutil.copy(renewed.folder / "jakarta-bank.key", ours / "jakarta-bank.key")
    eventually(lambda: "is not the key of the certificate" in caplog.text)
    shutil.copy(renewed.folder / "jakarta-bank.pem", ours / "jakarta-bank.pem")
    edge.put(sealed(2, 2))
    edge.acknowledged(at(2))
    assert edge.figures.interconnect_connections == 2
    assert far.numbers["jakarta/bank"] == [1, 2]


def test_certificates_that_are_of_no_use_end_an_edge_at_its_start(far, edges, ours):
    (ours / "jakarta-bank.key").write_text("no key")
    problem = edges(secure(far), **pem(ours, "jakarta-bank")).problem()
    assert isinstance(problem, ConfigurationError)
    assert f"{ours}/jakarta-bank.key holds no private key" in problem.message


def test_an_empty_batch_needs_the_right_certificate_too(far, edges, ours):
    edge = edges(secure(far), source="london/bank", **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 0, follows=START, source="london/bank"))
    assert "amqp:unauthorized-access" in str(edge.problem())
