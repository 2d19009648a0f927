"""Appended lines survive a torn writer, and a full disk is said."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import StoreError
from tasks.state.journal import append

values = st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none(), max_size=3)


def read(path: Path) -> list[dict]:
    """The lines that are whole."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(values, max_size=8), cut=st.integers(0, 300))
def test_what_was_whole_is_read_and_a_torn_end_costs_one_line(tmp_path: Path, lines: list[dict], cut: int) -> None:
    path = tmp_path / "j.jsonl"
    path.unlink(missing_ok=True)
    for line in lines:
        append(path, line)
    assert read(path) == lines
    whole = path.read_bytes() if lines else b""
    path.write_bytes(whole[:cut])
    append(path, {"after": "the kill"})
    found = read(path)
    assert found[-1] == {"after": "the kill"}
    assert found[: whole[:cut].count(b"\n")] == lines[: whole[:cut].count(b"\n")]


def test_a_full_disk_is_a_store_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    (tmp_path / "j.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="disk is full"):
        append(tmp_path / "j.jsonl", {"a": 1})
