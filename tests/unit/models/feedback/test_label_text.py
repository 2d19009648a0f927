import json

import numpy as np
import pyarrow as pa

from models.data.preparation import OutputColumn, TargetEncoding
from models.feedback.label_text import label_columns, label_text, label_values


def test_the_labels_of_several_targets_are_one_text():
    target = TargetEncoding(name="a, b", outputs=[OutputColumn(name=name, column=name) for name in ("a", "b")])
    text = label_text({"b": 2, "a": 0.1}, target.columns)
    assert json.loads(text) == {"a": 0.1, "b": 2.0}
    texts = pa.chunked_array([[text, "5", None, '{"a": 1}']])
    values = label_values(texts, target)
    assert values[0].tolist() == [0.1, 2.0]
    assert np.isnan(values[1:]).any(axis=1).all()
    assert label_columns(texts, ["b"])["b"].to_pylist()[:2] == [2.0, None]


def test_the_label_of_quantiles_is_that_of_each():
    outputs = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]
    assert label_values(pa.chunked_array([["1.5"]]), TargetEncoding(name="y", outputs=outputs)).tolist() == [[1.5, 1.5]]
