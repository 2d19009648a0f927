"""An entry is made once, whole or not at all; damaged it is made again; unused for long it goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from tasks.state.keyed_cache import JSON, Format, KeyedCache, arrays, document, mapped_array


class Point(BaseModel):
    x: float


VALUES: list[tuple[Format[Any], Any]] = [
    (JSON, None),
    (JSON, 3.5),
    (document(Point), Point(x=1)),
    (arrays(), {"a": np.arange(9)}),
    (mapped_array(), np.arange(9)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_is_made_once_and_again_if_it_is_damaged(tmp_path: Path, kind: Format[Any], value: Any) -> None:
    cache, made = KeyedCache(tmp_path / "here"), []

    def make() -> Any:
        made.append(value)
        return value

    for damage, count in ((None, 1), (None, 1), (b"", 2), (b"{", 3)):
        if damage is not None:
            next((tmp_path / "here").iterdir()).write_bytes(damage)
        np.testing.assert_equal(cache.get("key", kind, make), value)
        assert len(made) == count


def test_a_maker_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        KeyedCache(tmp_path).get("key", JSON, lambda: 1 / 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("in the way")
    assert KeyedCache(tmp_path / "here").get("key", JSON, lambda: 3) == 3


def test_only_old_entries_that_nobody_used_are_removed(tmp_path: Path) -> None:
    KeyedCache(tmp_path).get("used", JSON, lambda: 1)
    KeyedCache(tmp_path).get("young", JSON, lambda: 1)
    (tmp_path / "old").mkdir()
    for path in (tmp_path / "old", tmp_path / "used.json"):
        os.utime(path, (0, 0))
    cache = KeyedCache(tmp_path)
    cache.get("used", JSON, lambda: pytest.fail("it is there"))
    (tmp_path / ".young.json.1-abcdefgh.tmp").write_text("")
    cache.prune(60)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".young.json.1-abcdefgh.tmp", "used.json", "young.json"
    ]  # fmt: skip
    cache.prune(0)
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"used.json"}
