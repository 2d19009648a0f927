"""What came at an address is told without its content."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import StoreError
from models.files import Hashes
from models.sources import remote
from models.sources.source import LastIngest, Source


def test_what_came_is_told_by_versions_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    source = Source(f"file://{tmp_path}/*.csv", tmp_path)
    hashes = Hashes(tmp_path / "hashes.json")
    parts = remote.identity(source, hashes, None)
    before = LastIngest("key", "digest", parts, {})
    assert remote.identity(source, hashes, parts) == parts
    assert remote.growth(source, before, hashes, 0.0) is None
    (tmp_path / "b.csv").write_text("x\n2\n")
    arrival = remote.growth(source, before, hashes, 0.0)
    assert arrival is not None
    assert arrival.text == f"{source.text}: b.csv"


def test_a_source_that_is_away_is_refused_before_a_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such file, folder or bucket"):
        remote.identity(Source(f"file://{tmp_path}/gone.csv", tmp_path), Hashes(tmp_path / "hashes.json"), None)


def test_the_copy_is_what_is_read(tmp_path: Path) -> None:
    loaded = remote.read(Source("s3://lab/a.csv", tmp_path), lambda text: tmp_path / text.rpartition("/")[2])
    assert loaded == (tmp_path / "a.csv", "s3://lab/a.csv")
