"""Files that other machines read under their own names: published, fetched once, refreshed to the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.object_store import ObjectStore
from tasks.state import shared_files


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of one project on two machines."""
    folders = tmp_path / "a" / "tiny", tmp_path / "b" / "tiny"
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def test_another_machine_has_what_was_published(
    machines: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    mine, theirs = (folder / "references" / "1.json" for folder in machines)
    shared_files.fetch(machines[1], theirs)
    assert not theirs.exists()
    for text in ("old", "new"):
        mine.parent.mkdir(exist_ok=True)
        mine.write_text(text)
        shared_files.publish(machines[0], 1, mine)
        shared_files.fetch(machines[1], theirs)
    assert theirs.read_text() == "old", "a file that is here is not asked for again"
    shared_files.refresh(machines[1], theirs)
    assert theirs.read_text() == "new"


def test_what_a_machine_publishes_after_it_lost_the_loop_replaces_nothing(
    machines: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    cards = [folder / "card.html" for folder in machines]
    for card, epoch, text in ((cards[0], 1, "first"), (cards[1], 2, "of the new one"), (cards[0], 1, "late")):
        card.write_text(text)
        shared_files.publish(card.parent, epoch, card)
    shared_files.refresh(machines[0], cards[0])
    assert cards[0].read_text() == "of the new one"
    shared_files.publish(machines[1], 3, cards[1])
    published = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert [path.name for path in published] == ["00000003"]


def test_what_an_earlier_loopline_published_is_fetched(
    machines: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    ObjectStore(f"file://{tmp_path}/store").put("projects/tiny/files/references/1.json", b"earlier")
    shared_files.fetch(machines[0], machines[0] / "references" / "1.json")
    assert (machines[0] / "references" / "1.json").read_bytes() == b"earlier"


def test_pages_and_json_are_compressed_at_the_store_and_whole_elsewhere(
    machines: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    contents = {"card.html": b"<p>\xc3\xa4</p>\r\n" * 999, "a.json": b"[1, 2]" * 999, "table.parquet": b"PAR1" * 999}
    for name, content in contents.items():
        (machines[0] / name).write_bytes(content)
        shared_files.publish(machines[0], 1, machines[0] / name)
        shared_files.fetch(machines[1], machines[1] / name)
        assert (machines[1] / name).read_bytes() == content
    sizes = {
        name.split("/")[3]: found.size for name, found in ObjectStore(f"file://{tmp_path}/store").listed("").items()
    }
    assert max(sizes["card.html"], sizes["a.json"]) < 200
    assert sizes["table.parquet"] == len(contents["table.parquet"])


def test_a_store_that_is_away_is_an_error_unless_something_is_here(
    machines: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/file/store")
    page = machines[0] / "card.html"
    with pytest.raises(StoreError):
        shared_files.fetch(machines[0], page)
    page.write_text("mine")
    shared_files.refresh(machines[0], page)
    assert page.read_text() == "mine"


def test_without_a_root_nothing_is_uploaded(machines: tuple[Path, Path], tmp_path: Path):
    (machines[0] / "card.html").write_text("mine")
    shared_files.publish(machines[0], 1, machines[0] / "card.html")
    shared_files.refresh(machines[1], machines[1] / "card.html")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["card.html"]
