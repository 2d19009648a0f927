"""Only pages of the list are ever found."""

from pathlib import Path

from tasks.runtime.report_pages import known_pages


def test_the_pages_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "validation-raw.html").write_text("raw")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "card.html").mkdir()
    assert known_pages(tmp_path) == {"validation-raw": tmp_path / "reports" / "validation-raw.html"}
