"""L53: commits of several processes to one table on files, and the listing of a long log there."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest
from py4j.protocol import Py4JJavaError

from headrace import process
from infra.local.jars import present, spark
from infra.release.java_build import COMPILER, FILE_LOG_STORE
from spark_jobs import storage
from spark_jobs.log_store.choice import LINKING
from spark_jobs.maintenance import vacuum

_RIVALS = Path(__file__).with_name("LogStoreRivals.java")


def run(*command: object) -> str:
    """Run a program to its end, its files for its user alone as far as it does not say otherwise; return what it prints."""
    ended = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, umask=0o077, timeout=240)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout


def test_l53_of_commits_at_the_same_moment_one_counts_and_the_others_are_refused(tmp_path):
    """Delta's own looked first and renamed then: in one of a hundred such moments of four, two went on as if theirs counted."""
    jars = [*Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"), *spark()]
    jars += [process.jar_folder() / FILE_LOG_STORE.folder / FILE_LOG_STORE.name]
    class_path = os.pathsep.join(map(str, [tmp_path, *jars]))
    options = "--release", "17", "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", tmp_path, "-classpath", class_path
    run("java", "-jar", *present(COMPILER), *options, _RIVALS)
    log = tmp_path / "log"
    log.mkdir()
    rivals = "java", "-XX:+UseSerialGC", "-Xmx200m", "-cp", class_path, "headrace.LogStoreRivals"

    assert run(*rivals, os.environ.get("LOG_STORE", LINKING), log, 2000) == "0\n"

    # Nothing is left beside them; and who reads the table's other files, of which Hadoop sets the mode, reads these.
    assert sorted(file.name for file in log.iterdir()) == [f"{number:020d}.json" for number in range(2000)]
    assert {file.stat().st_mode & 0o777 for file in log.iterdir()} == {0o644}


@pytest.fixture
def store(spark):
    """Return the log store that Delta has for files in the run's session, and functions that ask it."""
    assert spark.sparkContext.getConf().get("spark.delta.logStore.file.impl") == LINKING
    java, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    ours = java.headrace.FileLogStore(configuration)

    class Store:
        @staticmethod
        def listing(folder, name):
            files = ours.listFrom(
                java.org.apache.hadoop.fs.Path(java.java.io.File(str(folder), name).toURI()), configuration
            )
            # For Python's own `next` an error in the JVM is the end.
            next_files = iter(files.hasNext, False)
            return (
                (it.getPath().toString(), it.getLen(), it.isDirectory()) for it in (next(files) for _ in next_files)
            )

        @staticmethod
        def listed(folder, name):
            return list(Store.listing(folder, name))

        @staticmethod
        def write(file, text, *, overwrite):
            lines = java.java.util.List.of(text).iterator()
            ours.write(java.org.apache.hadoop.fs.Path(f"file://{file}"), lines, overwrite, configuration)

    return Store


def test_a_log_on_files_is_listed_by_names_from_one_on(store, tmp_path):
    log = tmp_path / "of a table" / "_delta_log"
    log.mkdir(parents=True)
    names = [f"{number:020d}.{kind}" for number in range(20) for kind in ("crc", "json")]
    for name in [*names, *(f".{name}.crc" for name in names)]:
        (log / name).write_text(name)
    (log / "_sidecars").mkdir()
    (log / "of:another").touch()

    files = [(f"file:{log}/{name}", len(name), False) for name in names[20:]]
    assert store.listed(log, f"{10:020d}.") == [
        *files,
        (f"file:{log}/_sidecars", 0, True),
        (f"file:{log}/of:another", 0, False),
    ]
    assert store.listed(log, f"{10:020d}.json")[0] == files[1]
    # As VACUUM lists a folder: all but Hadoop's own.
    assert len(store.listed(log, "\0")) == len(names) + 2
    for none in (tmp_path / "none", log / names[0]):
        with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
            store.listed(none, f"{0:020d}.")


def test_commits_that_are_gone_since_they_were_listed_are_no_gap_that_nobody_sees(store, tmp_path):
    """Loads read the changes of some versions by such a listing: one that was skipped would be missing from the lake."""
    commits = [tmp_path / f"{number:020d}.json" for number in range(4)]
    for file in (*commits, tmp_path / "data.parquet"):
        file.touch()

    # The first ones are removed by whoever keeps the log short, and a file of data by VACUUM.
    files = store.listing(tmp_path, f"{0:020d}.json")
    for file in (commits[0], commits[1], tmp_path / "data.parquet"):
        file.unlink()
    assert [place[-7:] for place, *_ in files] == ["02.json", "03.json"]

    commits[1].touch()
    files = store.listing(tmp_path, f"{1:020d}.json")
    assert next(files)[0].endswith("01.json")
    commits[2].unlink()
    with pytest.raises(Py4JJavaError, match=f"FileNotFoundException: file:{commits[2]}"):
        next(files)


def test_a_table_whose_old_sums_maintenance_removed_is_read_as_of_then_and_goes_on(spark, tmp_path):
    path = tmp_path / "table"
    for number in range(14):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(str(path))
    log = path / "_delta_log"
    # Delta has our log store, as Hadoop keeps sums of its own beside what it writes.
    assert not [*log.glob(".*.json.crc")]
    for file in log.iterdir():
        os.utime(file, (0, 0))
    before = sum(file.suffix == ".crc" for file in log.iterdir())

    vacuum.tidy(log)

    assert sum(file.suffix == ".crc" for file in log.iterdir()) < before
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    session = spark.newSession()
    assert session.sql(f"SELECT * FROM {storage.table(str(path), 1)}").count() == 2
    spark.range(14, 15).coalesce(1).write.format("delta").mode("append").save(str(path))
    assert sorted(row["id"] for row in session.read.format("delta").load(str(path)).collect()) == list(range(15))
    spark.sql(f"OPTIMIZE {storage.table(str(path))}")
    assert session.sql(f"SELECT * FROM {storage.table(str(path), 13)}").count() == 14


def test_a_commit_is_not_compared_with_the_checksum_of_one_that_is_gone(store, spark, tmp_path):
    """As where a folder was restored: Hadoop's checksum of a file stays where that is removed by another program."""
    commit = tmp_path / f"{7:020d}.json"
    commit.with_name(f".{commit.name}.crc").write_bytes(b"crc\0\0\0\2\0\1\2\3\4")

    store.write(commit, "a line", overwrite=False)

    assert [row["value"] for row in spark.read.text(f"file://{commit}").collect()] == ["a line"]
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        store.write(commit, "another", overwrite=False)
    store.write(commit, "over it", overwrite=True)
    assert [row["value"] for row in spark.read.text(f"file://{commit}").collect()] == ["over it"]
    assert [file.name for file in tmp_path.iterdir()] == [commit.name]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        store.write(tmp_path / "none" / commit.name, "a line", overwrite=False)
