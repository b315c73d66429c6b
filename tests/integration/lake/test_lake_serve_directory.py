"""Users of `headrace lake serve` whom a directory (LDAP) knows: who is let in, groups, and a directory that does not answer; and
a client that asks for much and reads nothing.
"""

import json
import socket
import threading
import time
from urllib.parse import quote

import psutil
import pytest
from py4j.protocol import Py4JJavaError

from headrace.certificates.command import Authority
from headrace.process import jar_folder
from tests.integration.lake.test_lake_serve import refused
from tests.lake.logged import LoggedLake
from tests.lake.served import Server
from tests.rules.waiting import eventually
from tests.servers.directory import GROUPS, PEOPLE, Directory

PASSWORD, OTHER = "correct horse: battery", "another"
SECONDS = 40
PEOPLE_OF_TEST = {"alice": PASSWORD, "other-bob": OTHER, "dave": PASSWORD, "erin": PASSWORD}
#: Dave is in no group, and erin in one that is in another one.
GROUPS_OF_TEST = {"interns": ["erin"], "analysts": ["alice", "interns"]}
ANALYSTS = f"cn=analysts,{GROUPS}"
#: As directories have members: named by the group, by the person, or both by a search below; by short names.
SEARCHES = [
    f"?{ANALYSTS}?(member=uid={{}},{PEOPLE})",
    f"?uid={{}},{PEOPLE}?(memberOf={ANALYSTS})",
    f"?dc=example,dc=com?(&(uid={{}})(memberOf={ANALYSTS}))",
    f"?{ANALYSTS}?(memberUid={{}})",
]
#: Who is nobody, by a name and a password.
STRANGERS = [
    ("alice", "wrong"),
    ("alice", f"{PASSWORD} "),
    # to a directory these bind as nobody, or as anybody
    ("alice", ""),
    ("", ""),
    ("", PASSWORD),
    ("alice", "\0"),
    ("alice", f"{PASSWORD}\0"),
    ("alice", None),
    (None, PASSWORD),
    ("alice", "x" * 100_000),
    # names that are another place in the directory, or several
    (f"alice,{PEOPLE}", PASSWORD),
    ("other-bob,ou=other,dc=example,dc=com", OTHER),
    ("other-bob", OTHER),
    ("x+uid=alice", PASSWORD),
    ("al\\69ce", PASSWORD),
    ("*", PASSWORD),
    ("alice)(uid=*", PASSWORD),
    (" alice", PASSWORD),
    ("alice\n", PASSWORD),
    ("\uff41lice", PASSWORD),
    ("alice@example.com", PASSWORD),
    ("{}", PASSWORD),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Yield a directory that does without TLS, which a server takes on this machine alone."""
    directory = Directory(tmp_path_factory.mktemp("directory"), PEOPLE_OF_TEST, groups=GROUPS_OF_TEST)
    try:
        directory.start()
        yield directory
    finally:
        directory.stop()


@pytest.fixture(scope="module")
def java_class(spark):
    """Return a function that loads a class of the server's in the tests' own JVM."""
    urls = spark._sc._gateway.new_array(spark._jvm.java.net.URL, 1)
    urls[0] = spark._jvm.java.io.File(str(jar_folder() / "serve" / "headrace-serve.jar")).toURI().toURL()
    context = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return spark._jvm.java.net.URLClassLoader(urls, context).loadClass


@pytest.fixture(scope="module")
def users_of(spark, java_class):
    """Return a function that makes the server's users of an address."""

    def users(address):
        arguments = spark._sc._gateway.new_array(spark._jvm.java.lang.Object, 1)
        arguments[0] = address
        return java_class("headrace.serve.Users").getConstructors()[0].newInstance(arguments)

    return users


def test_who_binds_with_a_name_and_a_password_is_a_user(directory, users_of):
    users = users_of(directory.address)
    assert not users.isStill("alice")
    assert users.isUser("alice", PASSWORD)
    assert users.isStill("alice")
    assert users.ofBearer(f"Bearer alice:{PASSWORD}") == "alice"
    # as a domain of Windows names its users
    assert not users_of(directory.address.partition("uid=")[0] + "{}@example.com").isUser("alice", PASSWORD)


@pytest.mark.parametrize(("name", "password"), STRANGERS)
def test_who_does_not_is_none(directory, users_of, name, password):
    users = users_of(directory.address)
    assert not users.isUser(name, password)
    assert users.ofBearer(f"Bearer {name}:{password}" if name and password else f"Bearer {name or ''}") is None
    assert users.isUser("alice", PASSWORD)
    # once let in, it is still the password that decides
    assert not users.isUser(name, password)


@pytest.mark.parametrize("search", SEARCHES)
def test_of_a_directory_s_users_the_members_of_a_group_alone_may_ask(directory, users_of, search):
    users = users_of(directory.address + search)
    assert users.isUser("alice", PASSWORD)
    assert users.ofBearer(f"Bearer Alice:{PASSWORD}") == "Alice"
    # a group in the group is not looked into
    for name in ("dave", "erin"):
        assert users_of(directory.address).isUser(name, PASSWORD)
        assert not users.isUser(name, PASSWORD)
        assert not users.isStill(name)
    # nor is a name a part of the filter
    for name, password in [*STRANGERS, ("dave)(uid=alice", PASSWORD), ("dave)(cn=*", PASSWORD), ("erin\\2a", PASSWORD)]:
        assert not users.isUser(name, password)


def test_a_group_in_a_group_is_one_more_in_the_filter(directory, users_of):
    member = f"member=uid={{}},{PEOPLE}"
    users = users_of(f"{directory.address}?{GROUPS}?(&({member})(|(cn=analysts)(cn=interns)))")
    assert [name for name in PEOPLE_OF_TEST if users.isUser(name, PASSWORD)] == ["alice", "erin"]


@pytest.mark.parametrize(
    "search",
    [
        # there is no such place, it is none, and there is no such filter
        f"?cn=nobody,{GROUPS}?(member=uid={{}},{PEOPLE})",
        "?analysts?(memberUid={})",
        f"?{ANALYSTS}?(=uid={{}})",
        f"?{ANALYSTS}?()",
    ],
)
def test_a_search_that_cannot_be_lets_nobody_in(directory, users_of, search):
    assert not users_of(directory.address + search).isUser("alice", PASSWORD)


def test_a_directory_that_refuses_the_search_lets_nobody_in(users_of, tmp_path):
    directory = Directory(tmp_path, PEOPLE_OF_TEST, groups=GROUPS_OF_TEST, searches=False)
    try:
        directory.start()
        assert users_of(directory.address).isUser("alice", PASSWORD)
        for search in SEARCHES:
            users = users_of(directory.address + search)
            assert not users.isUser("alice", PASSWORD)
            assert not users.isStill("alice")
    finally:
        directory.stop()


def test_a_certificate_that_nobody_trusts_is_that_of_no_directory(users_of, tmp_path):
    certificate = Authority(tmp_path / "authority").server("directory", ["localhost"])
    directory = Directory(tmp_path / "directory", PEOPLE_OF_TEST, certificate)
    try:
        directory.start()
        with pytest.raises(Py4JJavaError, match="does not answer"):
            users_of(directory.address).isUser("alice", PASSWORD)
    finally:
        directory.stop()


def test_a_directory_that_is_down_keeps_out_who_is_new_alone(users_of, tmp_path):
    directory = Directory(tmp_path, PEOPLE_OF_TEST)
    users = users_of(directory.address)
    for ask in (lambda: users.isUser("alice", PASSWORD), lambda: users.ofBearer(f"Bearer alice:{PASSWORD}")):
        with pytest.raises(Py4JJavaError, match="does not answer: try again later") as caught:
            ask()
        assert PASSWORD not in str(caught.value)
    try:
        directory.start()
        assert users.isUser("alice", PASSWORD)
    finally:
        directory.stop()
    assert users.isUser("alice", PASSWORD)
    assert users.isStill("alice")
    with pytest.raises(Py4JJavaError, match="does not answer"):
        users.isUser("alice", "another password")


def test_a_directory_that_is_slow_keeps_nobody_else_waiting(users_of, tmp_path):
    real = Directory(tmp_path, PEOPLE_OF_TEST)
    with socket.create_server(("127.0.0.1", real.port)) as silent:
        users = users_of(real.address)
        outcomes, took = [], []

        def ask(number):
            began = time.monotonic()
            try:
                users.isUser(f"user{number}", "password")
            except Py4JJavaError as error:
                outcomes.append("does not answer" in str(error))
                took.append(time.monotonic() - began)

        # more than it asks for at once
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        # The directory has five seconds for those that it is asked for.
        eventually(lambda: len([each for each in took if each < 4.9]) >= 4, saying="those beyond are refused at once")
        assert not users.isStill("alice")
        for thread in threads:
            thread.join(30)
        assert outcomes == [True] * 20
        silent.close()


@pytest.fixture(scope="module")
def server(spark, tmp_path_factory):
    """Yield a server whose users are those of a group of a directory with TLS, of an authority that the environment names."""
    folder = tmp_path_factory.mktemp("served")
    lake = LoggedLake(spark, folder / "lake")
    feed = lake.feeds[0]
    feed.commit(feed.schema(), feed.insert(id=1, name="n", balance="1.00"))
    lake.load()
    server = Server(lake._path)
    certificate = Authority(server.folder / "authority").server("directory", ["localhost"])
    directory = Directory(folder / "directory", PEOPLE_OF_TEST, certificate, groups=GROUPS_OF_TEST)
    text = server.file.read_text()
    assert 'users = "users"' in text
    limits = text.replace("rows = 1000", f"rows = 2_000_000_000\nseconds = {SECONDS}")
    server.file.write_text(limits.replace('users = "users"', f'users = "{directory.address}{SEARCHES[0]}"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(server.authority))
        patch.setenv("LDAPTLS_CACERT", str(server.authority))
        try:
            directory.start()
            server.start()
            server.directory, server.lake = directory, lake
            yield server
        finally:
            server.stop()
            directory.stop()


@pytest.mark.long
def test_a_client_that_asks_for_ten_gigabytes_and_stops_reading_is_ended_alone(spark, server):
    text = "SELECT id, repeat('x', 1000) AS filler FROM range(0, 10000000, 1, 1000)"
    (jvm,) = psutil.Process(server.process.pid).children()
    with server.connect(quote(f"alice:{PASSWORD}")) as session, server.jdbc(spark, "alice", PASSWORD) as jdbc:
        session.sql("SELECT 1 AS a").collect()
        rows = session.sql(text).toLocalIterator()
        next(rows)
        statement = jdbc.connection.createStatement()
        statement.setFetchSize(100)
        answer = statement.executeQuery(text)
        assert answer.next()
        # others are answered meanwhile
        with server.connect(quote(f"alice:{PASSWORD}")) as other:
            assert other.sql("SELECT count(*) AS n FROM silver.accounts").collect()[0]["n"] == 1
        eventually(lambda: endings(server).count("too long") == 2, 4 * SECONDS, saying="both are ended")
        # what is kept for them is within the JVM's heap
        assert jvm.memory_info().rss < 3_000_000_000
        with pytest.raises(Py4JJavaError):
            list(iter(answer.next, False))
        assert jdbc.ask("SELECT count(*) FROM accounts") == [("1",)]


def endings(server):
    """Return how the queries of the audit file ended."""
    return [json.loads(line)["state"] for line in server.audit.read_text().splitlines()]


@pytest.mark.long
def test_users_of_a_directory_come_through_both_doors(spark, server):
    with server.connect(quote(f"alice:{PASSWORD}")) as session, server.jdbc(spark, "alice", PASSWORD) as jdbc:
        assert session.sql("SELECT count(*) AS n FROM silver.accounts").collect()[0]["n"] == 1
        assert jdbc.ask("SELECT count(*) FROM accounts") == [("1",)]
        strangers = [
            ("alice", "wrong"),
            ("alice", ""),
            ("other-bob", OTHER),
            ("dave", PASSWORD),
            (f"alice,{PEOPLE}", PASSWORD),
        ]
        for name, password in strangers:
            with pytest.raises(Py4JJavaError), server.jdbc(spark, name, password):
                pass
            with (
                pytest.raises(Exception, match="UNAUTHENTICATED"),
                server.connect(quote(f"{name}:{password}")) as other,
            ):
                other.sql("SELECT 1").collect()
        # while the directory is down, who was let in asks on, and others hear why they cannot
        server.directory.stop()
        assert jdbc.ask("SELECT count(*) FROM accounts") == [("1",)]
        assert session.sql("SELECT 1 AS a").collect()[0]["a"] == 1
        with server.connect(quote(f"carol:{PASSWORD}")) as other:
            assert "directory does not answer" in refused(lambda text: other.sql(text).collect(), "SELECT 1")
        with pytest.raises(Py4JJavaError), server.jdbc(spark, "carol", PASSWORD):
            pass
        # nor is another host of the same authority taken for it
        certificate = Authority(server.folder / "authority").server("elsewhere", ["elsewhere.example"])
        other_host = Directory(server.folder / "elsewhere", {"carol": PASSWORD}, certificate)
        other_host.port = server.directory.port
        try:
            other_host.start()
            with server.connect(quote(f"carol:{PASSWORD}")) as other:
                assert "directory does not answer" in refused(lambda text: other.sql(text).collect(), "SELECT 1")
        finally:
            other_host.stop()
            server.directory.start()
    texts = server.log + server.audit.read_text()
    assert "the directory of users does not answer" in texts
    assert PASSWORD not in texts
    assert OTHER not in texts
