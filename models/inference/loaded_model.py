"""A model version, loaded and ready to predict."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError, StoreError
from models.inference.explain import Explainer
from models.inference.input_schema import InputSchema
from models.inference.names import answer_columns
from models.inference.one_column import ImageSchema, TextSchema
from models.inference.portable import (
    BITS_PER_CHAR,
    LABEL,
    MODEL_FILE,
    NEXT_CHARACTER,
    PROBABILITIES,
    PROBABILITY,
    columns_of,
    next_chances,
    read_texts,
    records_of,
    rows_a_pass,
    run_in_passes,
)
from models.inference.predict import Feed, session
from models.inference.table import TableSchema
from models.inference.tensors import TensorSpec, port_of
from models.inference.windows import SeriesSchema
from models.kinds.data_kind import DATA_KINDS, PerDataKind

WARM_UP_RUNS = 8
TEXT_OUTPUTS = {NEXT_CHARACTER: "BYTES", PROBABILITY: "FP64", BITS_PER_CHAR: "FP64"}


@dataclass(slots=True)
class Prediction:
    """A version's predictions of some rows.

    `outputs`: arrays by the names of the version's outputs, the rows first. `project` and `version`: the model that
    predicted. `row_s`: seconds of model time for one row, averaged over all rows of the same call.
    """

    project: str
    version: str
    outputs: Mapping[str, np.ndarray] = field(repr=False)
    row_s: float = 0.0

    @property
    def num_rows(self) -> int:
        """Number of predicted rows."""
        return len(next(iter(self.outputs.values())))


class LoadedModel:
    """A version ready to predict.

    `inputs` and `outputs`: the tensors of requests and responses. For a text model these are texts; `graph_inputs` and
    `graph_outputs` are the code points and the other tensors of its graph.
    `finite_outputs`: the names of those that a valid answer gives finite numbers of.
    `schema`: turns rows into the input of `answer`. `call_ms`: milliseconds of one call with one row.

    Args:
        project: The model's project.
        version: Its number in the registry.
        folder: The folder with `model.onnx` and `preparation.json`, whose hashes are checked already.
        threads: Threads of ONNX Runtime.

    Raises:
        StoreError: A file is absent, or the model does not run here.
    """

    def __init__(self, project: str, version: str, folder: Path, threads: int = 1) -> None:
        self.project, self.version, self.folder = project, version, folder
        try:
            self.preparation = Preparation.load(folder)
        except (OSError, ValueError) as error:
            raise StoreError(f"{folder}: its preparation cannot be read ({error}): fetch the version again") from error
        self._session = session(folder / MODEL_FILE, threads)
        self._rows_a_pass = rows_a_pass(self._session)
        self.schema = input_schema(self.preparation)
        self.inputs = self.schema.inputs
        self.graph_inputs = [port_of(value) for value in self._session.get_inputs()]
        self.graph_outputs = [port_of(value) for value in self._session.get_outputs()]
        self.outputs = _OUTPUTS[self.preparation.kind](self.graph_outputs)
        self._names = [port.name for port in self.outputs]
        self.finite_outputs = _FINITE[self.preparation.kind](self._names)
        self._column_names = answer_columns(self.preparation.task, self.preparation.target)
        self.call_ms = self._warm_up()

    def answer(self, feed: Feed) -> Prediction:
        """Predict rows in the form that `schema` returns.

        Cost: a text is read in windows, one call for each.
        """
        began, rows = time.perf_counter(), len(next(iter(feed.values())))
        outputs = _RUNS[self.preparation.kind](self, feed)
        return Prediction(self.project, self.version, outputs, (time.perf_counter() - began) / (rows or 1))

    @functools.cached_property
    def explainer(self) -> Explainer | None:
        """The explainer of this version's predictions; None if it has none."""
        return Explainer.load(self.folder, self.preparation)

    @property
    def required_explainer(self) -> Explainer:
        """The explainer.

        Raises:
            DataError: It has none; says why.
        """
        if self.explainer:
            return self.explainer
        hint = (
            "only tables and series are explained by column"
            if not DATA_KINDS[self.preparation.kind].has_columns
            else f"it has {len(self.preparation.target.outputs)} outputs, and one can be explained: leave `explain` out"
            if self.preparation.target.outputs
            else "it keeps no background rows: train again"
        )
        raise DataError(f"explain: version {self.version} of {self.project} cannot be: {hint}")

    def check_finite(self, answer: Prediction) -> None:
        """Refuse a prediction with NaN or infinite values: its label would come with invalid probabilities.

        Raises:
            DataError: Names the row and the cure.
        """
        for name in self.finite_outputs:
            values = answer.outputs[name]
            if values.dtype.kind == "f" and not np.vdot(values, values) < np.inf and not np.isfinite(values).all():
                row = 1 + int(np.argwhere(~np.isfinite(values))[0, 0])
                raise DataError(
                    f"row {row}: the model finds no number: a value lies too far from those it was trained on: correct "
                    "it, or give null for missing"
                )

    def columns(self, answer: Prediction) -> dict[str, np.ndarray]:
        """Return the columns for callers: see `models.inference.portable.column_names`; else the model's outputs."""
        return columns_of(answer.outputs, self._column_names)

    def records(self, answer: Prediction) -> list[dict[str, Any]]:
        """Return `columns` as response rows."""
        return records_of(answer.outputs, self._column_names)

    def read_texts(self, feed: Feed) -> dict[str, np.ndarray]:
        """Return what follows texts, and how well they were predicted."""
        characters = self.preparation.required_characters
        return read_texts(self._session, feed["text"], characters.alphabet, characters.length)

    def next_chances(self, feed: Feed) -> dict[str, np.ndarray]:
        """Return what may follow texts as a classifier's answer, whose classes are the characters' names."""
        characters = self.preparation.required_characters
        chances = next_chances(self._session, feed["text"], characters.length)
        return {LABEL: np.array(characters.names, object)[chances.argmax(axis=1)], PROBABILITIES: chances}

    def run_graph(self, feed: Feed) -> dict[str, np.ndarray]:
        """Return the outputs of the graph by their names."""
        outputs = run_in_passes(self._session, self._names, feed, self._rows_a_pass)
        return dict(zip(self._names, outputs, strict=True))

    def _warm_up(self) -> float:
        """Return the milliseconds of one call with one row, after the runtime has allocated its memory."""
        feed = {port.name: _blank(port) for port in self.inputs}
        seconds = []
        for _ in range(WARM_UP_RUNS):
            start = time.perf_counter()
            try:
                self.answer(feed)
            except Exception as error:
                raise StoreError(f"{self.folder}: the model does not run ({error}): export it again") from error
            seconds.append(time.perf_counter() - start)
        return float(np.median(seconds)) * 1e3


_RUNS: PerDataKind[Callable[[LoadedModel, Feed], dict[str, np.ndarray]]] = {
    "table": LoadedModel.run_graph,
    "image": LoadedModel.run_graph,
    "series": LoadedModel.run_graph,
    "text": LoadedModel.read_texts,
}
_OUTPUTS: PerDataKind[Callable[[list[TensorSpec]], list[TensorSpec]]] = {
    "table": lambda of_graph: of_graph,
    "image": lambda of_graph: of_graph,
    "series": lambda of_graph: of_graph,
    "text": lambda of_graph: [TensorSpec(name, dtype, (-1,)) for name, dtype in TEXT_OUTPUTS.items()],
}
"""The outputs of answers, from those of the graph."""
_FINITE: PerDataKind[Callable[[list[str]], list[str]]] = {
    "table": lambda names: names,
    "image": lambda names: names,
    "series": lambda names: names,
    "text": lambda names: [],
}
"""The outputs that have no value without a meaning: the bits of a text may be NaN beside a next character."""
_SCHEMAS: PerDataKind[Callable[[Preparation], InputSchema]] = {
    "table": TableSchema,
    "series": SeriesSchema,
    "image": ImageSchema,
    "text": TextSchema,
}


def _blank(port: TensorSpec) -> np.ndarray:
    shape = [1 if size == -1 else size for size in port.shape]
    kinds: dict[str, Any] = {"FP64": np.float64, "UINT8": np.uint8}
    return np.full(shape, "", object) if port.dtype == "BYTES" else np.zeros(shape, kinds[port.dtype])


def input_schema(preparation: Preparation) -> InputSchema:
    """Return what a version with this preparation takes."""
    schema = _SCHEMAS[preparation.kind](preparation)
    schema.na_is_text, schema.forms = preparation.na_is_text, preparation.forms
    return schema
