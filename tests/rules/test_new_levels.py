"""Rule: a level that no training row has is answered as rows are on average, whatever the family."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from models.export.export import export
from models.inference.loaded_model import LoadedModel
from tests.finished_jobs import METADATA
from tests.goal_jobs import fitted, prepared_table
from tests.golden_specs import SMALL_NET, SMALL_TREES

ROWS, LEVELS = 2000, 150
NEW = 60
"""Rows of which each has a level of its own that is new."""


def answers(place: Path, net: str, arguments: dict[str, object]) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of rows with levels of training, and of rows with new ones."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(4)
    level, x = draw.integers(0, LEVELS, ROWS), draw.normal(size=ROWS)
    is_yes = 2 * draw.normal(size=LEVELS)[level] + draw.normal(size=ROWS) > 0
    columns = {"shop": [f"s{number}" for number in level], "x": x, "y": np.where(is_yes, "yes", "no")}
    prepared = prepared_table(place / "prepared", columns, data={"split": {"by": "stratified", "test": 0.2}})
    job = fitted(place / "job", prepared, net, arguments, epochs=4, lr=0.01)
    (place / "out").mkdir()
    export(job.as_json(), str(place / "out"), METADATA)
    model = LoadedModel("levels", "1", place / "out")
    usual = pa.table(columns).drop_columns("y")
    new = usual.slice(0, NEW).set_column(0, "shop", pa.array([f"new {number}" for number in range(NEW)]))
    first, second = (model.answer(model.schema.from_arrow(rows)).outputs["probabilities"] for rows in (usual, new))
    return first[:, 1], second[:, 1]


@pytest.mark.parametrize(
    ("net", "arguments"),
    [
        ("trees", {**SMALL_TREES, "rounds": 60}),
        pytest.param("linear", {}, marks=pytest.mark.wide),
        pytest.param("mlp", SMALL_NET, marks=pytest.mark.wide),
    ],
)
def test_a_new_level_is_answered_as_rows_on_average(net: str, arguments: dict[str, object], tmp_path: Path) -> None:
    usual, new = answers(tmp_path, net, arguments)
    assert usual.std() > 0.2, "levels decide"
    assert abs(new.mean() - usual.mean()) < 0.15
    assert new.std() < 0.1
