import numpy as np
import pyarrow as pa
import pytest

from models.data.encode import encode
from models.data.prepare import prepare_table, write_rows
from models.data.weights import row_weights, weights_of
from models.errors import DataError
from models.project_spec.blocks import Spec

TABLE = pa.table(
    {
        "x": np.arange(60.0),
        "w": pa.array([None if row == 3 else float(row % 3) for row in range(60)]),
        "y": ["no", "yes"] * 30,
    }
)


def test_weights_are_one_on_average_over_the_training_rows():
    train = np.array([0, 0, 1])
    assert row_weights(pa.chunked_array([[1.0, 3.0, 4.0]]), "w", train).tolist() == [0.5, 1.5, 2.0]
    assert row_weights(pa.chunked_array([[1.0, None, 4.0]]), "w", train).tolist() == [1.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -2.0, 1.0], "got -2, expected weights >= 0"),
        ([0.0, 0.0, 1.0], "all 2 train rows weigh 0, so nothing can be learnt"),
        ([1.0, 0.0, 0.0], "all 1 validation rows weigh 0, so no metric can be measured.*split another way"),
    ],
)
def test_what_is_no_weight_is_refused(values, message):
    with pytest.raises(DataError, match=message):
        row_weights(pa.chunked_array([values]), "w", np.array([0, 0, 1]))


def test_the_weight_is_no_input_and_reaches_the_tensors(tmp_path):
    spec = Spec.model_validate({"name": "t", "data": {"source": "t.csv", "target": "y", "weight": "w"}})
    rows, preparation = prepare_table(TABLE, spec, tmp_path)
    assert [part.name for part in preparation.numeric] == ["x"]
    assert preparation.left_out["w"] == "it weighs the row (data.weight)"
    write_rows(rows, preparation, tmp_path)
    tensors = encode(tmp_path, "train")
    assert tensors["weight"].mean() == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(weights_of(tmp_path, "train"), tensors["weight"], rtol=1e-6)
    raw = np.where(np.isnan(rows.column("x").to_numpy()), 1, rows.column("x").to_numpy() % 3)
    assert len(np.unique(np.round(weights_of(tmp_path, "test"), 6))) <= len(np.unique(raw)) + 1


def test_rows_without_weights_have_none(tmp_path):
    spec = Spec.model_validate({"name": "t", "data": {"source": "t.csv", "target": "y"}})
    write_rows(*prepare_table(TABLE, spec, tmp_path), tmp_path)
    assert weights_of(tmp_path, "test") is None
