"""A loop's pages stay what they were."""

from __future__ import annotations

from pathlib import Path

from tasks.loop.loop_pages import keep_page, page_of


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
