"""The worst test rows are those with the largest loss, shown as rows, as small pictures, or not at all."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from models.data.feeds import feed_at, targets
from models.data.prepared_rows import rows_of
from models.judge.evidence import Evidence
from models.judge.worst_examples import MOST_EXAMPLES, worst_examples
from models.project_spec.reserved_columns import ROW_COLUMN
from tests.unit.models.judge.test_held_out import prepared


def of_table(place: Path, target: list[object], prediction: object = None, shows_rows: bool = True):
    table = pa.table({"x": np.arange(400) / 4, "c": ["uv"[row % 2] * 500 for row in range(400)], "y": target})
    _, preparation = prepared(table, place)
    true = targets(place / "prepared", "test")
    evidence = Evidence(preparation.task, true, np.zeros(len(true)) if prediction is None else prediction(true))
    worst = worst_examples(place / "prepared", preparation, evidence)
    return worst if shows_rows else worst.without_rows()


def test_the_worst_rows_of_a_table_come_with_their_numbers_and_short_values(tmp_path: Path):
    worst = of_table(tmp_path, [float(row) for row in range(400)])
    rows = rows_of(tmp_path / "prepared", "test", [ROW_COLUMN]).column(0).to_pylist()
    assert worst.num_samples == len(rows)
    assert [example.row for example in worst.examples] == [1 + row for row in sorted(rows, reverse=True)]
    first = worst.examples[0]
    assert (first.loss, first.truth, first.predicted) == (max(rows), str(max(rows)), "0")
    assert first.values["x"] == max(rows) / 4
    assert len(str(first.values["c"])) == 200
    assert len(worst.examples) <= MOST_EXAMPLES


def test_classes_are_named_and_the_loss_is_what_the_true_one_lacks(tmp_path: Path):
    worst = of_table(tmp_path, ["no", "yes"] * 200, lambda true: np.where(true == 1, 0.25, 0.5))
    outcomes = {(example.truth, example.predicted, example.loss) for example in worst.examples}
    assert outcomes == {("yes", "no", 0.75), ("no", "yes", 0.5)}
    assert worst.examples[0].truth == "yes"


def test_rows_that_may_not_be_shown_are_not_stored(tmp_path: Path):
    worst = of_table(tmp_path, ["no", "yes"] * 200, shows_rows=False)
    assert {*worst.model_dump(exclude_defaults=True)["examples"][0]} == {"loss"}
    assert not worst.shows_rows


def test_pictures_are_small_files(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 6, 1)).astype(np.uint8)
    table = pa.table({"x": [picture.tobytes() for picture in pixels], "y": ["a", "b"] * 30})
    image = {"column": "x", "height": 8, "width": 6, "channels": 1}
    _, preparation = prepared(table, tmp_path, kind="image", image=image)
    true = targets(tmp_path / "prepared", "test")
    evidence = Evidence(preparation.task, true, np.linspace(0.1, 0.9, len(true)))
    first = worst_examples(tmp_path / "prepared", preparation, evidence).examples[0]
    place = int(np.argmax(np.abs(true - evidence.challenger)))
    shown = np.array(Image.open(io.BytesIO(base64.b64decode(first.picture))))
    expected = feed_at(tmp_path / "prepared", "test", preparation, np.array([place]))["image"][0, ..., 0]
    np.testing.assert_array_equal(shown, expected)
