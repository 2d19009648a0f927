import json

import numpy as np

from models.export.head_graph import graph_outputs
from models.export.preparation_graph import graph_inputs
from models.export.signature import feed_of, input_example, signature
from tests.finished_jobs import image_preparation, table_preparation


def test_signature_is_plain_json_with_a_named_batch() -> None:
    inputs = signature(graph_inputs(table_preparation()))
    assert inputs[0] == {"name": "größe (m)", "dtype": "double", "shape": ["batch"]}
    assert inputs[2] == {"name": "city", "dtype": "string", "shape": ["batch"]}
    image = {"name": "image", "dtype": "uint8", "shape": ["batch", 4, 6, 2]}
    assert signature(graph_inputs(image_preparation())) == [image]
    outputs = signature(graph_outputs(table_preparation("multiclass")))
    assert outputs[1] == {"name": "probabilities", "dtype": "float", "shape": ["batch", 3]}


def test_an_example_goes_through_json_and_back() -> None:
    feed = {
        "größe (m)": np.array([1.5, np.nan, 2.0, 9.0]),
        "n/1": np.zeros(4),
        "city": np.array(["東京", "", "Bern", "x"], object),
        "month": np.array(["1"] * 4, object),
        "is late": np.array(["true"] * 4, object),
    }
    text = json.dumps(input_example(feed), allow_nan=False)
    again = feed_of(json.loads(text), signature(graph_inputs(table_preparation())))
    assert json.loads(text)["größe (m)"] == [1.5, None, 2.0]
    for name, values in feed.items():
        np.testing.assert_array_equal(again[name], values[:3])
        assert again[name].dtype == values.dtype
