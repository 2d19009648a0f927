"""Labels of several targets are one text in the label store, and come back as they were."""

import numpy as np
import pyarrow as pa

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.feedback.label_text import label_columns, label_text, label_values

TWO = TargetEncoding(name="load, price", outputs=[OutputColumn(name=name, column=name) for name in ("load", "price")])


def test_labels_of_several_targets_come_back_as_they_were():
    texts = pa.chunked_array([[label_text({"load": 1, "price": 2.5}, ["load", "price"]), "no label", None]])
    columns = label_columns(texts, ["load", "price"])
    assert columns["load"].to_pylist() == [1.0, None, None]
    assert columns["price"].to_pylist() == [2.5, None, None]
    values = label_values(texts, TWO)
    assert values[0].tolist() == [1.0, 2.5]
    assert np.isnan(values[1:]).all()


def test_one_target_is_its_class_or_its_number():
    texts = pa.chunked_array([["yes", "no", "perhaps"]])
    assert label_values(texts, TargetEncoding(name="y", classes=["no", "yes"]))[:2].tolist() == [1.0, 0.0]
    assert label_values(pa.chunked_array([["3", "x"]]), TargetEncoding(name="y"))[0] == 3.0


def test_a_number_is_the_label_of_each_of_its_quantiles():
    levels = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]
    assert label_values(pa.chunked_array([["3"]]), TargetEncoding(name="y", outputs=levels)).tolist() == [[3.0, 3.0]]
