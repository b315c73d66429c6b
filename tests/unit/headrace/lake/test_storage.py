"""Where a lake on S3 is, and by which keys, as the console takes it from the lake's file."""

import pytest

from headrace.lake.storage import Storage, location, store_options

S3A = "spark.hadoop.fs.s3a."


def test_a_folder_and_other_stores_have_no_options():
    for root in ("/lake", "file:///lake", "abfss://c@a.dfs.core.windows.net/lake", "gs://b/lake"):
        assert store_options(root, {f"{S3A}access.key": "k"}) == {}
    # Without settings the process's environment decides alone.
    assert store_options("s3a://bucket/lake", {"spark.executor.memory": "4g"}) == {}


def test_settings_of_hadoops_client_become_those_of_deltalake():
    settings = {
        f"{S3A}endpoint": "127.0.0.1:9000",
        f"{S3A}endpoint.region": "eu-west-2",
        f"{S3A}connection.ssl.enabled": "false",
        f"{S3A}access.key": "k",
        f"{S3A}secret.key": "s",
        f"{S3A}bucket.other.access.key": "not this",
        f"{S3A}bucket.lakes.secret.key": "of the bucket",
    }
    assert store_options("s3a://lakes/a", settings) == {
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_virtual_hosted_style_request": "false",
        "aws_allow_http": "true",
        "aws_region": "eu-west-2",
        "aws_access_key_id": "k",
        "aws_secret_access_key": "of the bucket",
    }


def test_an_endpoint_without_a_scheme_is_reached_over_tls():
    result = store_options("s3://lakes/a", {f"{S3A}endpoint": "s3.example"})
    assert result["aws_endpoint"] == "https://s3.example"
    assert "aws_allow_http" not in result


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_of_this_machine_is_taken_as_hadoop_takes_it(tmp_path, scheme):
    """Behind `#` or `?` nothing was read, and `%20` was a space."""
    for name in ("a#b", "a?b", "a b", "a%20b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").write_text(name)
        assert location(f"{scheme}{folder}") == str(folder)
        assert Storage(f"{scheme}{folder}", {}).read("file") == name.encode()
