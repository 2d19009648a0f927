from models.serving.registry import KEY
from tasks.host import database
from tasks.state import versions
from tasks.state.versions import StoredVersion, version_of, versions_of


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
