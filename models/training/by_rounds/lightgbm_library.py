"""LightGBM by its C API: its Python package imports scikit-learn, scipy and pandas, a CPU-second of each search.

The functions are those of https://lightgbm.readthedocs.io/en/stable/C-API.html. Models have the bits, and texts the
bytes, that the Python package gives them.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import TrainingError

Parameters = dict[str, Any]
VERSION = importlib.metadata.version("lightgbm")
_CODES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.int32): 2}
"""C_API_DTYPE_FLOAT32, _FLOAT64 and _INT32."""
_IS_ROW_MAJOR, _RAW_SCORE, _BY_SPLITS, _TRAINING = 1, 1, 0, 0
_TEXT_BYTES = 1 << 20
_END_OF_TEXT = "\npandas_categorical:null\n"
"""What the Python package writes below each text."""


def _loaded() -> ctypes.CDLL:
    files = importlib.metadata.files("lightgbm") or ()
    path = next((file for file in files if file.stem == "lib_lightgbm"), None)
    if path is None:
        raise TrainingError("lightgbm: its library lib_lightgbm is not among the installed files: install it again")
    library = ctypes.CDLL(str(path.locate()))
    library.LGBM_GetLastError.restype = ctypes.c_char_p
    return library


_LIBRARY = _loaded()


class TrainSet:
    """Rows that boosters learn from, in bins.

    Args:
        features: float32 or float64 (row, feature); they are kept for the outputs of earlier boosters.
        label: (row,).
        weight: (row,); None: all ones.
        parameters: Of LightGBM, which decide the bins.
        categorical: Positions of the features whose numbers are categories.
        group: Numbers of rows of the groups of a ranking, in order.
        reference: Rows whose bins these have.

    Attributes:
        label: float32 (row,).
        weight: float32 (row,); None: all ones.

    Raises:
        TrainingError: LightGBM refuses the rows or the parameters.
    """

    def __init__(
        self,
        features: NDArray[Any],
        label: NDArray[Any],
        weight: NDArray[Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        categorical: Sequence[int] = (),
        group: NDArray[Any] | None = None,
        reference: TrainSet | None = None,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self.features = np.ascontiguousarray(features)
        self.label = np.ascontiguousarray(label, np.float32)
        is_plain = weight is None or bool(np.all(weight == 1))
        self.weight = None if is_plain else np.ascontiguousarray(weight, np.float32)
        self.columns = {"categorical_column": list(categorical)} if len(categorical) else {}
        words = _words({**(parameters or {}), **self.columns})
        handle = None if reference is None else reference.handle
        _call("DatasetCreateFromMat", *_matrix(self.features), words, handle, ctypes.byref(self._handle))
        self._set_field("label", self.label)
        if self.weight is not None:
            self._set_field("weight", self.weight)
        if group is not None:
            self._set_field("group", np.ascontiguousarray(group, np.int32))

    def __del__(self) -> None:
        _LIBRARY.LGBM_DatasetFree(self._handle)

    @property
    def handle(self) -> ctypes.c_void_p:
        """What the library knows it by."""
        return self._handle

    def begin_at(self, outputs: NDArray[np.float64]) -> None:
        """Let further boosters add to these raw outputs (row, output)."""
        self._set_field("init_score", np.ascontiguousarray(outputs.T).ravel())

    def _set_field(self, name: str, values: NDArray[Any]) -> None:
        _call("DatasetSetField", self._handle, name.encode(), _pointer(values), len(values), _CODES[values.dtype])


Gradients = Callable[[NDArray[Any], TrainSet], tuple[NDArray[Any], NDArray[Any]]]
"""An objective of our own: raw outputs and training set -> gradient and second derivative of each row."""


class Booster:
    """Trees of LightGBM: grown here, or read from a text.

    Args:
        handle: What the library knows it by; it is freed with this object.
        train_set: What it learns from; None for trees that were read.
    """

    def __init__(self, handle: ctypes.c_void_p, train_set: TrainSet | None = None) -> None:
        self._handle, self._train_set = handle, train_set
        self._num_outputs = _number("BoosterGetNumClasses", handle)

    def __del__(self) -> None:
        _LIBRARY.LGBM_BoosterFree(self._handle)

    @classmethod
    def of_text(cls, text: str) -> Booster:
        """Return the booster that wrote a text."""
        handle, rounds = ctypes.c_void_p(), ctypes.c_int()
        _call("BoosterLoadModelFromString", text.encode(), ctypes.byref(rounds), ctypes.byref(handle))
        return cls(handle)

    @classmethod
    def begin(
        cls, parameters: Parameters, train_set: TrainSet, before: Booster | None, gradients: Gradients | None
    ) -> Booster:
        """Return a booster without a round of its own, which adds to an earlier one's trees.

        Raises:
            TrainingError: LightGBM refuses a parameter.
        """
        handle, objective = ctypes.c_void_p(), {} if gradients is None else {"objective": "none"}
        if before is not None:
            train_set.begin_at(before.raw(train_set.features, 0, -1, int(parameters["num_threads"])))
        words = _words({**parameters, **objective, "num_iterations": 1, **train_set.columns})
        _call("BoosterCreate", train_set.handle, words, ctypes.byref(handle))
        if before is not None:
            _call("BoosterMerge", handle, before._handle)
        if gradients is not None:
            _call("BoosterResetParameter", handle, _words(objective))
        return cls(handle, train_set)

    def update(self, gradients: Gradients | None) -> None:
        """Grow one more round.

        Raises:
            TrainingError: LightGBM refuses the rows.
        """
        is_finished = ctypes.c_int()
        if gradients is None:
            _call("BoosterUpdateOneIter", self._handle, ctypes.byref(is_finished))
            return
        parts = gradients(self.train_outputs(), self._learnt_from)
        first, second = (np.ascontiguousarray(part, np.float32) for part in parts)
        _call("BoosterUpdateOneIterCustom", self._handle, _pointer(first), _pointer(second), ctypes.byref(is_finished))

    def raw(self, features: NDArray[Any], start: int, rounds: int, threads: int) -> NDArray[np.float64]:
        """Return what the trees of so many rounds from `start` on (-1: all) add to the outputs: (row, output)."""
        inputs = np.ascontiguousarray(features)
        outputs, count = np.empty((len(inputs), self._num_outputs)), ctypes.c_int64()
        which = (_RAW_SCORE, start, rounds, _words({"num_threads": threads}))
        _call("BoosterPredictForMat", self._handle, *_matrix(inputs), *which, ctypes.byref(count), _pointer(outputs))
        return outputs

    def train_loss(self) -> float:
        """Return the training loss of LightGBM's metric."""
        values, count = np.empty(_number("BoosterGetEvalCounts", self._handle)), ctypes.c_int()
        _call("BoosterGetEval", self._handle, _TRAINING, ctypes.byref(count), _pointer(values))
        return float(values[0])

    def train_outputs(self) -> NDArray[np.float64]:
        """Return the outputs for the training rows (row,), of a booster with one output."""
        outputs, count = np.empty(len(self._learnt_from.label)), ctypes.c_int64()
        _call("BoosterGetPredict", self._handle, _TRAINING, ctypes.byref(count), _pointer(outputs))
        return outputs

    def to_text(self, rounds: int | None = None) -> str:
        """Return the text of the first `rounds` rounds, or of all."""
        return self._written("BoosterSaveModelToString", rounds) + _END_OF_TEXT

    def dump(self) -> dict[str, Any]:
        """Return the trees as nested dicts, as `Booster.dump_model` of the Python package does."""
        document: dict[str, Any] = json.loads(self._written("BoosterDumpModel"))
        return document

    def _written(self, function: str, rounds: int | None = None) -> str:
        size = _TEXT_BYTES
        while True:
            buffer, needed = ctypes.create_string_buffer(size), ctypes.c_int64()
            which = (0, rounds or -1, _BY_SPLITS, ctypes.c_int64(size))
            _call(function, self._handle, *which, ctypes.byref(needed), buffer)
            if needed.value <= size:
                return buffer.value.decode()
            size = needed.value

    @property
    def _learnt_from(self) -> TrainSet:
        assert self._train_set is not None
        return self._train_set


def _call(function: str, *arguments: Any) -> None:
    if getattr(_LIBRARY, f"LGBM_{function}")(*arguments):
        reason = _LIBRARY.LGBM_GetLastError().decode()
        raise TrainingError(f"trees: LightGBM refuses ({reason}): look at model.arguments and the data")


def _number(function: str, handle: ctypes.c_void_p) -> int:
    number = ctypes.c_int()
    _call(function, handle, ctypes.byref(number))
    return number.value


def _matrix(features: NDArray[Any]) -> tuple[Any, ...]:
    return _pointer(features), _CODES[features.dtype], *features.shape, _IS_ROW_MAJOR


def _pointer(values: NDArray[Any]) -> ctypes.c_void_p:
    return values.ctypes.data_as(ctypes.c_void_p)


def _words(parameters: Mapping[str, Any]) -> bytes:
    """Return parameters as the library reads them."""
    return " ".join(f"{name}={_word(value)}" for name, value in parameters.items() if value is not None).encode()


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(f"[{_word(part)}]" if isinstance(part, list) else str(part) for part in value)
    return str(value)
