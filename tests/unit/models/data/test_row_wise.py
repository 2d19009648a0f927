"""A feature function is called on pieces only if it makes the same of a row by itself."""

import pyarrow as pa
import pytest

from models.data.row_wise import check_feature_function, is_row_wise
from models.errors import UserCodeError
from models.project_spec.blocks import Data

ROWS = pa.table({"x": [float(n % 97) for n in range(3000)], "c": [f"k{n % 5}" for n in range(3000)]})

FUNCTIONS = {
    "squared": ("frame['y'] = frame['x'] ** 2", True),
    "unchanged": ("pass", True),
    "text": ("frame['y'] = frame['c'].str.upper() + frame['x'].astype(int).astype(str)", True),
    "centred": ("frame['y'] = frame['x'] - frame['x'].mean()", False),
    "before": ("frame['y'] = frame['x'].shift(1)", False),
    "counted": ("frame['y'] = frame.groupby('c')['x'].transform('size')", False),
    "dummies": ("frame = frame.join(__import__('pandas').get_dummies(frame['c']))", False),
    "needs_many": ("assert len(frame) > 100", False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_told_by_calling_it_on_pieces(tmp_path, name):
    body, expected = FUNCTIONS[name]
    (tmp_path / "features.py").write_text(f"def make(frame):\n    {body}\n    return frame\n")
    assert is_row_wise(ROWS, "./features.py:make", tmp_path) is expected


def test_few_rows_are_enough(tmp_path):
    (tmp_path / "features.py").write_text("def make(frame):\n    frame['y'] = frame['x'].rank()\n    return frame\n")
    assert is_row_wise(ROWS.slice(0, 3), "./features.py:make", tmp_path) is False


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "frame['leak'] = (frame.y == 'yes') * 1.0",
            r"needs the target 'y'; rows to predict have none.*AttributeError",
        ),
        ("frame['noise'] = np.random.default_rng().random(len(frame))", "column 'noise' has other values at each call"),
        ("frame['leak'] = frame['y'].eq('yes') if 'y' in frame else 0.0", "column 'leak' depends on the target 'y'"),
        ("if 'y' in frame:\n        frame['leak'] = 1.0", "column 'leak' depends on the target 'y'"),
        ("frame['mean'] = frame.groupby('c')['x'].transform('mean')", r"depends on other rows.*in data\.features\.fit"),
        ("raise ValueError('no luck')", "raised ValueError: no luck"),
    ],
)
def test_what_serving_cannot_make_is_refused_before_training(tmp_path, body, message):
    (tmp_path / "features.py").write_text(f"import numpy as np\n\ndef make(frame):\n    {body}\n    return frame\n")
    rows = ROWS.append_column("y", pa.array(["yes", "no", "no"] * 1000))
    with pytest.raises(UserCodeError, match=message):
        check_feature_function(rows, data("y"), tmp_path)


def test_what_is_made_of_the_row_alone_is_taken(tmp_path):
    (tmp_path / "features.py").write_text(
        "def make(frame):\n    return frame.assign(square=frame.x**2, y=frame.x > 3)\n"
    )
    check_feature_function(ROWS, data("y"), tmp_path)  # the target itself may be made


def data(target: str) -> Data:
    return Data.model_validate({"source": "x", "target": target, "features": {"make": "./features.py:make"}})
