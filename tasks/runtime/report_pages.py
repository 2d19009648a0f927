"""The pages that the steps leave behind, by name: the only files that may be shown, whatever a request asks for."""

from __future__ import annotations

from pathlib import Path

PAGES = {
    "card": "card.html",
    "validation-raw": "reports/validation-raw.html",
    "validation-prepared": "reports/validation-prepared.html",
    "watch": "watch/watch.html",
    "backtest": "backtest/backtest.html",
}


def known_pages(state: Path) -> dict[str, Path]:
    """The pages of a project that are there, by name."""
    return {name: path for name, inside in PAGES.items() if (path := state / inside).is_file()}
