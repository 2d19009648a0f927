"""What a version of the data is like: kinds, missing values, bins by class, sample rows, hashes of ids."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.data.prepare import prepare
from models.project_spec.blocks import Spec
from models.sources.read import write_table
from models.validation import profiling
from models.validation.data_profile import DataProfile
from models.validation.profiling import profile_of

NUM = 400


def profiled(folder: Path, columns: dict[str, Any], target: str = "y", **data: Any) -> DataProfile:
    spec = Spec.model_validate({"name": "t", "data": {"source": "x.csv", "target": target, **data}})
    write_table(pa.table(columns), folder / "raw.parquet")
    prepare(folder / "raw.parquet", spec, folder, folder / "prepared")
    return profile_of(folder / "raw.parquet", folder / "prepared", spec.data)


def columns(num: int = NUM) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "code": [f"c-{number}" for number in range(num)],
        "x": pa.array([None, *random.normal(size=num - 1)], pa.float64()),
        "<b>": random.choice(["red", "blue"], num),
        "day": [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=number) for number in range(num)],
        "list": [[1.0, 2.0]] * num,
        "y": np.where(np.arange(num) % 4, "yes", "no"),
    }


def test_each_column_has_its_kind_its_counts_and_its_reason(tmp_path: Path) -> None:
    profile = profiled(tmp_path, columns(), id="code")
    by_name = {column.name: column for column in profile.columns}
    assert [(name, column.role) for name, column in by_name.items()] == [
        ("y", "target"), ("x", "input"), ("<b>", "input"), ("day", "input"), ("code", "left out"), ("list", "left out")
    ]  # fmt: skip
    assert (profile.num_raw, profile.num_prepared, profile.groups) == (NUM, NUM, ["no", "yes"])
    x = by_name["x"]
    assert (x.missing, x.distinct, x.histogram is not None) == (1 / NUM, NUM - 1, True)
    assert x.histogram is not None
    assert sum(map(sum, x.histogram.counts)) == NUM - 1
    assert x.quantiles == sorted(x.quantiles, key=lambda value: value or 0)
    assert 0.3 < (x.score or 0) < 0.7
    assert x.metric == "roc_auc"
    categories = by_name["<b>"].categories
    assert categories is not None
    assert sum(categories.counts[0]) == NUM / 4
    assert by_name["day"].unit == "seconds"
    assert by_name["code"].reason == "it names the row (data.id)"
    assert by_name["list"].distinct is None
    assert "list" in by_name["list"].reason
    assert DataProfile.read(profile.model_dump_json()) == profile


def test_sample_rows_are_spread_over_the_raw_rows_and_name_their_split(tmp_path: Path) -> None:
    table = columns()
    table["y"] = ["" if number == 0 else value for number, value in enumerate(table["y"])]
    profile = profiled(tmp_path, table, id="code")
    assert len(profile.sample) == 50
    assert (profile.sample[0].number, profile.sample[0].split) == (1, "")
    assert profile.sample[-1].number == NUM
    assert {row.split for row in profile.sample[1:]} == {"train", "validation", "test"}
    assert profile.sample[-1].cells[0] == f"c-{NUM - 1}"
    assert profile.dropped == {"without a target": 1}


def test_personal_data_shows_no_value_of_few_rows(tmp_path: Path) -> None:
    table = columns()
    table["<b>"] = ["Zoe" if number == 3 else "red" for number in range(NUM)]
    profile = profiled(tmp_path, table, id="code", show_rows=False, features={"kinds": {"<b>": "categorical"}})
    text = profile.model_dump_json()
    assert "Zoe" not in text
    assert "c-1" not in text
    by_name = {column.name: column for column in profile.columns}
    assert by_name["x"].quantiles[0] is None
    assert by_name["<b>"].categories is not None
    assert by_name["<b>"].categories.names == ["red"]
    assert sum(map(sum, by_name["<b>"].categories.counts)) == NUM


def test_personal_data_shows_no_whole_number_and_no_class_of_few_rows(tmp_path: Path) -> None:
    """A bin of whole numbers is a value; the legend of the charts names classes."""
    table = columns()
    table["age"] = [91 if number == 5 else 20 + number % 2 for number in range(NUM)]
    table["y"] = ["rare" if number in (7, 9) else "yes" if number % 4 else "no" for number in range(NUM)]
    open_profile = profiled(tmp_path, table, id="code")
    profile = open_profile.without_rows()
    assert (open_profile.groups, profile.groups) == (["no", "rare", "yes"], ["no", "yes", "others"])
    assert "rare" not in profile.model_dump_json()
    for column in profile.columns:
        counted = column.histogram or column.categories
        if counted is not None:
            before = next(old for old in open_profile.columns if old.name == column.name)
            old_counts = (before.histogram or before.categories).counts
            assert sum(map(sum, counted.counts)) == sum(map(sum, old_counts))
        if column.histogram is not None:
            cells = [sum(cell) for cell in zip(*column.histogram.counts, strict=True)][1:-1]
            assert not [count for count in cells if 0 < count < 10], column.name
            assert cells


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0, 5.0], [-1e300, 1e300], [1e-320, 2e-320], [1.7e9, 1.7e9 + 1], [0.1, 0.2, 1e9], [-3.0, -2.0]],
)
def test_bins_hold_every_number(values: list[float]) -> None:
    column = pa.chunked_array([pa.array(values)])
    histogram = profiling._counted(column, "number", profiling.Groups.none(len(values)))["histogram"]
    assert sum(map(sum, histogram.counts)) == len(values)
    assert len(histogram.counts[0]) <= 2 * profiling.MOST_BINS
    assert np.log2(histogram.width) == round(np.log2(histogram.width))


def test_a_target_of_numbers_is_cut_into_thirds_and_many_classes_into_the_largest(tmp_path: Path) -> None:
    numbers = profiled(tmp_path, {"x": np.arange(300.0), "y": np.arange(300.0)})
    assert numbers.groups == ["y to 99.67", "to 199.3", "above"]
    assert [sum(group) for group in numbers.columns[1].histogram.counts] == [100, 100, 100]  # type: ignore[union-attr]
    classes = [f"class {number % 12}" for number in range(600)]
    many = profiled(tmp_path, {"x": np.arange(600.0), "y": classes})
    assert len(many.groups) == profiling.MOST_GROUPS
    assert many.groups[-1] == "others"


def test_large_tables_are_counted_by_evenly_spread_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MOST_ROWS", 100)
    monkeypatch.setattr(profiling, "BATCH_ROWS", 64)
    monkeypatch.setattr(profiling, "LEAST_HASHES", 32)
    monkeypatch.setattr(profiling, "MOST_COLUMNS", 2)
    profile = profiled(tmp_path, columns(), id="code")
    assert (profile.num_counted, profile.num_columns, len(profile.columns)) == (100, 6, 2)
    assert profile.ids is not None
    assert (profile.ids.num_rows, len(profile.ids.hashes)) == (NUM, 32)


def test_pictures_are_shown_as_small_pngs(tmp_path: Path) -> None:
    pixels = [bytes([number]) * 16 for number in range(60)]
    image = {"column": "image", "height": 4, "width": 4}
    table = {"image": pa.array(pixels, pa.binary()), "y": ["a", "b"] * 30}
    profile = profiled(tmp_path, table, kind="image", image=image)
    assert base64.b64decode(profile.sample[0].picture).startswith(b"\x89PNG")
    assert profile.shown_columns == ["y"]
    assert {column.name: column.kind for column in profile.columns} == {"y": "string", "image": "image"}


def test_series_and_texts_have_pages_too(tmp_path: Path) -> None:
    times = [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=number) for number in range(NUM)]
    series = {"at": times, "y": np.sin(np.arange(NUM) / 5), "x": np.arange(NUM) % 7}
    shape: dict[str, Any] = {"kind": "series", "window": {"length": 8}, "split": {"by": "time", "column": "at"}}
    profile = profiled(tmp_path, series, **shape)
    assert profile.columns[0].role == "target and input"
    assert profile.columns[0].histogram is not None
    lines = {"text": [f"line {number} of a longer text" for number in range(NUM)]}
    text = profiled(tmp_path, lines, "text", kind="text", text={"length": 16})
    assert (text.groups, text.columns[0].unit, text.ids) == ([""], "characters", None)
