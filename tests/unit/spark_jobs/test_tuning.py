"""Settings and numbers that follow the cores of a machine or of a cluster (L26, L35); names of Java that are looked up once."""

from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

from spark_jobs import tuning

PARTITIONS, OF_LOG = "spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"


@pytest.mark.parametrize(
    ("master", "given", "cores"),
    [
        ("local", {}, 1),
        ("local[2]", {}, 2),
        ("local[16,4]", {}, 16),
        ("local-cluster[2,3,1024]", {}, 6),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.cores.max": "12"}, 12),
        ("spark://host:7077", {"spark.default.parallelism": "40", "spark.cores.max": "12"}, 40),
        ("yarn", {"spark.executor.instances": "10"}, 10),
        ("yarn", {"spark.executor.cores": "4"}, None),
        (
            "k8s://https://h",
            {
                "spark.executor.instances": "1",
                "spark.dynamicAllocation.maxExecutors": "50",
                "spark.executor.cores": "4",
            },
            200,
        ),
    ],
)
def test_cores_are_those_that_master_and_settings_tell_of(master, given, cores):
    assert tuning.cores(master, given) == cores


@pytest.mark.parametrize(
    ("cores", "partitions", "of_log"), [(1, "8", "1"), (2, "8", "1"), (16, "32", "4"), (200, "400", "50")]
)
def test_tasks_follow_the_cores(cores, partitions, of_log):
    assert tuning.settings(cores) == {PARTITIONS: partitions, OF_LOG: of_log}


class Context:
    """As much of a Spark session as tells cores and takes settings."""

    def __init__(self, conf, cores):
        self.conf, self.sparkContext, self.defaultParallelism = self, self, cores
        self._jsc, self.now, self.later = self, dict(conf), {}

    def get(self, name, default):
        return self.now.get(name, default)

    def set(self, name, value):
        # The session's own, and the context's, which new sessions take.
        self.now[name] = self.later[name] = value

    def sc(self):
        return self

    def __call__(self):
        return self


def test_a_cluster_of_unknown_size_is_followed_but_for_what_the_file_sets():
    spark = Context(tuning.ahead("spark://host:7077", {OF_LOG: "3"}), cores=64)

    tuning.follow(spark)

    assert spark.later == {PARTITIONS: "128"}


def test_a_size_that_is_known_is_not_changed():
    spark = Context(tuning.ahead("local[2]", {}), cores=2)

    tuning.follow(spark)

    assert spark.later == {}


@pytest.mark.parametrize(("cores", "tables"), [(1, 4), (2, 4), (16, 8), (500, 32)])
def test_more_cores_write_more_tables_at_a_time_within_what_a_driver_bears(cores, tables):
    assert tuning.tables_at_a_time(Context({}, cores)) == tables


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
    tuning.remember_java_names()
    tuning.remember_java_names()
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
