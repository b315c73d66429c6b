"""What a cluster's driver finds of what was submitted."""

from spark_jobs import submit


def test_the_lakes_file_is_found_where_it_is_named_or_in_the_drivers_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = "/nowhere/lake.toml"
    assert submit.find_file(named) == named
    (tmp_path / "lake.toml").touch()
    assert submit.find_file(named) == "lake.toml"
    other = tmp_path / "other"
    other.mkdir()
    (other / "lake.toml").touch()
    assert submit.find_file(str(other / "lake.toml")) == str(other / "lake.toml")
