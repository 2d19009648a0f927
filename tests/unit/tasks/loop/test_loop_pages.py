"""A loop's pages stay what they were, and go when nobody can ask for them any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from models.errors import StoreError
from models.serving.registry import RegisteredVersion
from tasks.loop.loop_pages import keep_page, page_of, sweep_pages
from tasks.mlflow import registry_reader

NOW = 1e9


def old_page(state: Path, loop_id: str) -> None:
    page = page_of(state, loop_id, "card")
    page.parent.mkdir(parents=True)
    page.write_text(loop_id)
    os.utime(page.parent, (NOW - 20 * 86400,) * 2)


def test_a_step_that_an_earlier_loop_did_shows_its_page_in_this_loop_too(tmp_path: Path) -> None:
    source = tmp_path / "work" / "card.html"
    source.parent.mkdir()
    source.write_text("version 1")
    for loop_id in ("a-1", "a-2"):
        keep_page(tmp_path, loop_id, "card", source, 1, "a-1")
    source.unlink()
    keep_page(tmp_path, "a-3", "card", source, 1, "a-1")
    assert [page_of(tmp_path, f"a-{n}", "card").read_text() for n in (1, 2, 3)] == ["version 1"] * 3
    assert not keep_page(tmp_path, "a-4", "card", source, 1).exists()


def test_pages_of_versions_in_use_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for loop_id in ("champion", "past", "this"):
        old_page(tmp_path, loop_id)
    version = RegisteredVersion(number="1", tags={"loopline.loop_id": "champion"})

    def away(*_: object) -> RegisteredVersion:
        raise StoreError("away")

    monkeypatch.setattr(registry_reader, "named", away)
    sweep_pages(tmp_path, {"this"}, 14, NOW)
    assert {folder.name for folder in (tmp_path / "pages").iterdir()} == {"champion", "past", "this"}
    monkeypatch.setattr(registry_reader, "named", lambda _, __, name: version if name == "champion" else None)
    sweep_pages(tmp_path, {"this"}, 21, NOW)
    assert (tmp_path / "pages" / "past").exists()
    sweep_pages(tmp_path, {"this"}, 14, NOW)
    assert {folder.name for folder in (tmp_path / "pages").iterdir()} == {"champion", "this"}
