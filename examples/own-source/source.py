"""The log of a shop, a line an order: `2026-01-05T08:00 order=0 items=3 price=61.20 channel=web gift=0 back=1`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

LOG = "orders.log"


def load(project: Path) -> pd.DataFrame:
    """Return a row for each order; `returned` says whether it came back."""
    rows = []
    for line in (project / LOG).read_text().splitlines():
        at, *fields = line.split()
        rows.append({"at": at, **dict(field.split("=") for field in fields)})
    frame = pd.DataFrame(rows).astype({"items": int, "price": float, "gift": int, "back": int})
    frame["returned"] = frame.pop("back").map({0: "no", 1: "yes"})
    return frame


def arrived(project: Path) -> int:
    """Return the length of the log: while it stays the same, there is nothing new to read."""
    return (project / LOG).stat().st_size
