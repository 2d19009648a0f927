from models.serving.registry import KEY
from tasks.host import database
from tasks.state import versions
from tasks.state.versions import StoredVersion, address_of, place_below, version_of, versions_of


def test_versions_are_read_as_they_were_saved_without_those_removed(tmp_path):
    stored = [
        StoredVersion(number, "run", f"file:///{number}", {KEY: f"k{number}"}, at)
        for number, at in (("2", 2.0), ("1", 1.0))
    ]
    with database.writing(tmp_path) as connection:
        versions.save(connection, "flights", *stored)
        versions.save(connection, "taxis", stored[0])
    assert versions_of(tmp_path, "flights") == stored[::-1]
    assert version_of(tmp_path, "flights", "2").registered.key == "k2"
    removed = StoredVersion("2", "run", "", {}, 2.0, is_removed=True)
    with database.writing(tmp_path) as connection:
        versions.save(connection, "flights", removed)
        assert [row.number for row in versions.read(connection, "flights", key="k1")] == ["1"]
    assert version_of(tmp_path, "flights", "2") is None
    assert version_of(tmp_path, "taxis", "2") == stored[0]


def test_a_place_within_the_workspace_moves_with_it(tmp_path):
    before, after = tmp_path / "a b" / ".loopline", tmp_path / "c" / ".loopline"
    for place in (f"{before}/mlflow/artifacts/m", f"{before.as_uri()}/mlflow/artifacts/m"):
        assert address_of(after, place_below(before, place)) == f"{after.as_uri()}/mlflow/artifacts/m"
    for elsewhere in ("s3://bucket/m", "mlflow-artifacts:/1/m", "/data/m", (tmp_path / "m").as_uri(), ""):
        assert address_of(after, place_below(before, elsewhere)) == elsewhere


def test_every_place_is_made_whole_for_machines_whose_workspace_lies_elsewhere(tmp_path):
    whole = ("s3://bucket/m", "mlflow-artifacts:/1/m", "file:///data/m", "")
    places = ("mlflow/artifacts/m", *whole)
    stored = [StoredVersion(str(number), "run", place, {}, number) for number, place in enumerate(places)]
    with database.writing(tmp_path) as connection:
        versions.save(connection, "flights", *stored)
        versions.place_whole(connection, tmp_path)
        placed = [version.place for version in versions.read(connection, "flights")]
    assert placed == [f"{tmp_path.as_uri()}/mlflow/artifacts/m", *whole]
