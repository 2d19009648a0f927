"""Tensors as JSON and as bytes, both ways."""

import contextlib
import struct
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from models.errors import DataError
from models.inference.predict import session
from models.inference.tensors import (
    BYTES,
    DTYPES,
    TensorSpec,
    bytes_of_tensor,
    checked_shape,
    json_of_tensor,
    port_of,
    tensor_of_bytes,
    tensor_of_json,
    text_of,
)
from tests.served_models import write_served

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, max_side=4)


def numbers() -> st.SearchStrategy[tuple[str, np.ndarray]]:
    def of(dtype: str) -> st.SearchStrategy[tuple[str, np.ndarray]]:
        return st.tuples(st.just(dtype), arrays.arrays(DTYPES[dtype], SHAPES))

    return st.sampled_from(sorted(DTYPES)).flatmap(of)


@given(numbers())
def test_numbers_come_back_from_their_bytes(case: tuple[str, np.ndarray]) -> None:
    dtype, values = case
    found = tensor_of_bytes(bytes_of_tensor(values), dtype, values.shape, "x")
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype


@given(numbers())
def test_numbers_come_back_from_json(case: tuple[str, np.ndarray]) -> None:
    dtype, values = case
    if values.dtype.kind == "f" and np.isinf(values).any():
        return
    written = orjson.dumps(json_of_tensor(values.astype(np.float64) if dtype == "FP16" else values), option=16)
    np.testing.assert_array_equal(tensor_of_json(orjson.loads(written), dtype, values.shape, "x"), values)


@given(st.lists(st.text(), min_size=1))
def test_texts_come_back(texts: list[str]) -> None:
    values = np.array(texts, object)
    assert tensor_of_bytes(bytes_of_tensor(values), BYTES, values.shape, "x").tolist() == texts
    assert tensor_of_json(json_of_tensor(values), BYTES, values.shape, "x").tolist() == texts


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert tensor_of_json([1.0, 2], "UINT8", (2,), "x").tolist() == [1, 2]


def test_null_and_booleans_mean_what_they_mean_without_tensors() -> None:
    assert tensor_of_json([None, "u"], BYTES, (2,), "x").tolist() == [None, "u"]
    assert tensor_of_json([True, 0.5], "FP64", (2,), "x").tolist() == [1.0, 0.5]
    assert tensor_of_json([True, False], "INT64", (2,), "x").tolist() == [1, 0]


def test_json_may_be_nested_as_the_shape_says() -> None:
    assert tensor_of_json([[1, None], [2.5, 3]], "FP64", (2, 2), "x")[1].tolist() == [2.5, 3.0]
    with pytest.raises(DataError, match=r"not of shape \[4\]"):
        tensor_of_json([[1, 2], [3, 4]], "FP64", (4,), "x")
    with pytest.raises(DataError, match="not of shape"):
        tensor_of_json([[1, 2], [3]], "FP64", (3,), "x")


@pytest.mark.parametrize(
    ("data", "dtype", "said"),
    [
        (5, "FP64", "is no list"),
        ([1], "FP64", "got 1 elements, expected 2 x FP64"),
        (["1", "2"], "FP64", "got '1' among the data, expected FP64"),
        ([1.5, 2], "INT64", "got 1.5 among the data, expected INT64"),
        (["u", 5], BYTES, "got 5 among the data, expected BYTES"),
        ([1, 0], "BOOL", "got 1 among"),
        ([1, 256], "UINT8", "a number that UINT8 does not hold"),
        ([None, 1], "INT64", "got null"),
        ([{}, {}], "FP32", "got an object"),
    ],
)
def test_json_of_another_type_or_size_is_refused(data: object, dtype: str, said: str) -> None:
    with pytest.raises(DataError, match=f"input 'x'.*{said}"):
        tensor_of_json(data, dtype, (2,), "x")


@pytest.mark.parametrize(
    ("content", "dtype"),
    [
        (bytes(15), "FP64"),
        (bytes(17), "FP64"),
        (struct.pack("<I", 5) + b"abc", BYTES),
        (struct.pack("<I", 1) + b"a", BYTES),
        (struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b" + b"c", BYTES),
        (struct.pack("<I", 2**32 - 1) * 2, BYTES),
    ],
)
def test_bytes_of_another_size_are_refused(content: bytes, dtype: str) -> None:
    with pytest.raises(DataError, match="input 'x'"):
        tensor_of_bytes(content, dtype, (2,), "x")


@given(st.binary(max_size=40))
def test_no_bytes_do_harm(content: bytes) -> None:
    with contextlib.suppress(DataError):
        assert len(tensor_of_bytes(content, BYTES, (2,), "x")) == 2


def test_any_byte_but_0_is_true() -> None:
    assert tensor_of_bytes(b"\x00\x01\x02", "BOOL", (3,), "x").tolist() == [False, True, True]


def test_an_element_is_text_in_utf_8() -> None:
    assert text_of("é".encode(), "x") == "é"
    with pytest.raises(DataError, match="no UTF-8"):
        text_of(b"\xff", "x")


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ([1], "FP128", "got datatype 'FP128', expected BOOL"),
        ([1], None, "got datatype null"),
        (None, "FP64", "`shape` is null"),
        ([], "FP64", "`shape` is a list of 0"),
        ([1] * 9, "FP64", "`shape` is a list of 9"),
        ("1", "FP64", "`shape` is '1'"),
        ([0], "FP64", "expected whole numbers above 0"),
        ([-1], "FP64", "expected whole numbers above 0"),
        ([True], "FP64", "expected whole numbers above 0"),
        ([2**70], "FP64", "expected whole numbers above 0"),
        ([[1]], "FP64", "expected whole numbers above 0"),
    ],
)
def test_a_shape_is_a_list_of_sizes(shape: object, dtype: object, said: str) -> None:
    assert checked_shape([2, 3], "FP64", "x") == (2, 3)
    with pytest.raises(DataError, match=said):
        checked_shape(shape, dtype, "x")


@pytest.mark.parametrize(
    ("task", "ports"),
    [
        ("binary", [TensorSpec("x", "FP64", (-1,)), TensorSpec("c", "BYTES", (-1,))]),
        ("image", [TensorSpec("image", "UINT8", (-1, 2, 3, 1))]),
        ("language", [TensorSpec("text", "INT64", (-1, -1))]),
    ],
)
def test_a_size_that_may_vary_is_minus_one(tmp_path: Path, task: str, ports: list[TensorSpec]) -> None:
    write_served(tmp_path, task)
    assert [port_of(value) for value in session(tmp_path / "model.onnx").get_inputs()] == ports
