"""A feature function is called on pieces only if it makes the same of a row by itself."""

import pyarrow as pa
import pytest

from models.data.row_wise import is_row_wise

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
