"""Names of Java classes are looked up in the JVM once, what may change each time."""

from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

from spark_jobs import java_names

#: Answers of Py4J's protocol: a package, a class, a static method, an integer.
ANSWERS = {"org": "yp", "org.apache": "yp", "org.apache.Late": "yp", "functions": "ycorg.apache.functions"}
ANSWERS |= {"org.apache.functions": "ycorg.apache.functions", "col": "ym", "count": "yi7"}


class Client:
    """Answers as a JVM would, and keeps what it was asked."""

    converters = None
    gateway_property = SimpleNamespace(pool=None)

    def __init__(self):
        self.asked = []

    def send_command(self, command):
        lines = command.split("\n")
        self.asked.append(lines[3] if lines[1] == "m" else lines[2])
        return ANSWERS[self.asked[-1]]


@pytest.fixture
def client(monkeypatch):
    for kind in (JVMView, JavaPackage, JavaClass):
        monkeypatch.setattr(kind, "__getattr__", kind.__getattr__)
    java_names.remember()
    java_names.remember()
    return Client()


def test_packages_classes_and_static_methods_are_looked_up_once(client):
    jvm = JVMView(client, "default", id="rj")
    for _ in range(2):
        assert isinstance(jvm.functions.col, JavaMember)
        assert isinstance(jvm.org.apache.functions, JavaClass)
    assert client.asked == ["functions", "col", "org", "org.apache", "org.apache.functions"]


def test_what_may_become_a_class_and_fields_are_looked_up_each_time(client):
    jvm = JVMView(client, "default", id="rj")
    for _ in range(2):
        assert isinstance(jvm.org.apache.Late, JavaPackage)
        assert jvm.functions.count == 7
    assert client.asked.count("org.apache.Late") == client.asked.count("count") == 2
