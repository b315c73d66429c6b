"""Settings and numbers that follow the cores of a machine or of a cluster (L26, L35)."""

import pytest

from spark_jobs import sizes

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
    assert sizes.cores(master, given) == cores


@pytest.mark.parametrize(
    ("cores", "partitions", "of_log"), [(1, "8", "1"), (2, "8", "1"), (16, "32", "4"), (200, "400", "50")]
)
def test_tasks_follow_the_cores(cores, partitions, of_log):
    assert sizes.settings(cores) == {PARTITIONS: partitions, OF_LOG: of_log}


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
    spark = Context(sizes.ahead("spark://host:7077", {OF_LOG: "3"}), cores=64)

    sizes.follow(spark)

    assert spark.later == {PARTITIONS: "128"}


def test_a_size_that_is_known_is_not_changed():
    spark = Context(sizes.ahead("local[2]", {}), cores=2)

    sizes.follow(spark)

    assert spark.later == {}


@pytest.mark.parametrize(("cores", "tables"), [(1, 4), (2, 4), (16, 8), (500, 32)])
def test_more_cores_write_more_tables_at_a_time_within_what_a_driver_bears(cores, tables):
    assert sizes.tables_at_a_time(Context({}, cores)) == tables
