import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.data.preparation import Preparation
from models.export.preparation_graph import graph_inputs, preparation_part
from models.inputs.categorical.record import CategoricalInput
from models.inputs.categorical.rows import category_indices
from models.inputs.numeric.record import NumericInput
from models.inputs.numeric.rows import encode_numeric, standardised
from models.inputs.types import as_text
from models.project_spec.window import Window
from models.training.batches.example_set import carried_forward
from tests.finished_jobs import (
    image_preparation,
    run_stretch,
    series_preparation,
    table_preparation,
)
from tests.wide import examples

TABLE = {"numeric", "categorical"}


def described(preparation: Preparation) -> list[tuple[str, int, list[object]]]:
    tensors = [(value.name, value.type.tensor_type) for value in graph_inputs(preparation)]
    return [
        (name, tensor.elem_type, [part.dim_param or part.dim_value for part in tensor.shape.dim])
        for name, tensor in tensors
    ]


def test_inputs_are_the_projects_own_columns() -> None:
    double, text, byte = 11, 8, 2
    columns = [("größe (m)", double), ("n/1", double), ("city", text), ("month", text), ("is late", text)]
    assert described(table_preparation()) == [(name, dtype, ["batch"]) for name, dtype in columns]
    assert described(image_preparation()) == [("image", byte, ["batch", 4, 6, 2])]
    assert described(series_preparation()) == [("series", double, ["batch", 5, 2])]


NUMBERS = st.floats(allow_infinity=False, width=64, min_value=-1e30, max_value=1e30) | st.just(float("nan"))
# NUL ends a string in ONNX Runtime's Python binding, as in numpy's own text arrays.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@examples(30)
@given(
    values=st.lists(NUMBERS, min_size=1, max_size=20),
    fill=st.floats(-1e6, 1e6),
    shift=st.floats(-1e6, 1e6),
    scale=st.floats(1e-3, 1e6),
)
def test_numbers_become_the_same_bits_as_in_training(
    values: list[float], fill: float, shift: float, scale: float
) -> None:
    part = NumericInput(name="x", fill=fill, shift=shift, scale=scale)
    preparation = table_preparation().with_inputs("numeric", [part]).with_inputs("categorical", [])
    column = np.array(values)
    (got,) = run_stretch(preparation_part(preparation, {"numeric"}), {"x": column}, ["core/numeric"])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, encode_numeric(column, part)[:, None])


@examples(30)
@given(
    categories=st.lists(TEXTS.filter(bool), unique=True, max_size=8),
    others=st.lists(st.none() | TEXTS, max_size=8),
)
def test_categories_become_the_same_indices_as_in_training(categories: list[str], others: list[str | None]) -> None:
    part = CategoricalInput(name="c", categories=categories)
    preparation = table_preparation().with_inputs("numeric", []).with_inputs("categorical", [part])
    values = [*categories, *others, None]
    column = as_text(pa.chunked_array([pa.array(values, pa.string())]))
    feed = {"c": np.array([value or "" for value in values], object)}
    stretch = preparation_part(preparation, {"categorical"})
    (got,) = run_stretch(stretch, feed, ["core/categorical"])
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got[:, 0], category_indices(column, part))


def test_columns_keep_their_order_and_unseen_values_are_zero() -> None:
    feed = {
        "größe (m)": np.array([2.0, np.nan]),
        "n/1": np.array([np.nan, 5.0]),
        "city": np.array(["東京", "Bern"], object),
        "month": np.array(["12", "2"], object),
        "is late": np.array(["true", "false"], object),
    }
    stretch = preparation_part(table_preparation(), TABLE)
    numeric, categorical = run_stretch(stretch, feed, ["core/numeric", "core/categorical"])
    np.testing.assert_allclose(numeric, [[2.0, -3.0], [0.8, 5.0]], rtol=1e-6)
    assert categorical.tolist() == [[3, 2, 2], [0, 0, 1]]


def test_columns_of_different_lengths_are_refused() -> None:
    preparation = table_preparation().with_inputs("categorical", [])
    feed = {"größe (m)": np.zeros(2), "n/1": np.zeros(4)}
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match=r"mismatched dimensions of 4 and 2"):
        run_stretch(preparation_part(preparation, {"numeric"}), feed, ["core/numeric"])


def test_a_kind_of_column_that_is_absent_is_a_tensor_without_columns() -> None:
    numbers_only = table_preparation().with_inputs("categorical", [])
    feed = {"größe (m)": np.zeros(3), "n/1": np.zeros(3)}
    (empty,) = run_stretch(preparation_part(numbers_only, {"categorical"}), feed, ["core/categorical"])
    assert (empty.shape, empty.dtype) == ((3, 0), np.int64)
    texts_only = table_preparation().with_inputs("numeric", [])
    texts = {name: np.array(["x"], object) for name in ("city", "month", "is late")}
    (empty,) = run_stretch(preparation_part(texts_only, {"numeric"}), texts, ["core/numeric"])
    assert (empty.shape, empty.dtype) == ((1, 0), np.float32)


def test_images_become_channels_first_and_are_normalised_by_channel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 2)).astype(np.uint8)
    (got,) = run_stretch(preparation_part(image_preparation(), {"image"}), {"image": image}, ["core/image"])
    mean, std = np.array([0.2, 0.6]), np.array([0.3, 0.1])
    np.testing.assert_allclose(got, ((image / 255 - mean) / std).transpose(0, 3, 1, 2), atol=1e-5)


def test_a_missing_value_of_a_series_is_the_last_known_one_of_its_window_as_in_training() -> None:
    random = np.random.default_rng(0)
    for length in (1, 2, 5, 9):
        preparation = series_preparation()
        preparation = preparation.model_copy(update={"window": Window(length=length)})
        series = np.where(random.random((8, length, 2)) < 0.5, np.nan, random.normal(120, 9, (8, length, 2)))
        (got,) = run_stretch(preparation_part(preparation, {"series"}), {"series": series}, ["core/series"])
        parts = enumerate(preparation.numeric)
        scaled = np.stack([standardised(series[:, :, at], part) for at, part in parts], axis=2)
        fill = torch.tensor([encode_numeric(np.float64(np.nan), part) for part in preparation.numeric])
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, carried_forward(torch.from_numpy(scaled), fill).numpy())
    series = np.array([[[np.nan, 1.0], [2.0, np.nan], [np.nan, np.nan]]])
    assert carried_forward(torch.from_numpy(series), torch.tensor([7.0, 8.0]))[0].tolist() == [[7, 1], [2, 1], [2, 1]]
