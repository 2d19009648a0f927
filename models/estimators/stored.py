"""The weights of an estimator as bytes: how its matrix is made, and the model of each output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from models.estimators.inputs import InputPlan


class OutputModel(NamedTuple):
    """The model of an output.

    Attributes:
        classes: The codes of the classes that it learnt, ascending; empty for a number. The model knows them as 0, 1
            and so on. One class alone has no model, since no other was seen.
        model: The bytes of the library, or an ONNX graph of a library without rounds; empty for one class alone.
    """

    classes: tuple[int, ...]
    model: bytes


class StoredEstimator(NamedTuple):
    """The weights of an estimator: a model for each output, label or quantile, or one model of all classes."""

    plan: InputPlan
    outputs: Sequence[OutputModel]


def pack(estimator: StoredEstimator) -> bytes:
    """Return the weights as bytes: a line of JSON, then the models; equal weights give equal bytes."""
    header = {
        "plan": asdict(estimator.plan),
        "classes": [output.classes for output in estimator.outputs],
        "sizes": [len(output.model) for output in estimator.outputs],
    }
    line = json.dumps(header, sort_keys=True).encode()
    return b"\n".join([line, b"".join(output.model for output in estimator.outputs)])


def unpack(content: bytes) -> StoredEstimator:
    """Return the weights that `pack` wrote."""
    line, _, models = content.partition(b"\n")
    header = json.loads(line)
    fields = header["plan"]
    shift, scale, one_hot = (tuple(fields[name]) for name in ("shift", "scale", "one_hot"))
    plan = InputPlan(shift, scale, one_hot, fields["num_numbers"], fields["num_categories"])
    outputs, start = [], 0
    for classes, size in zip(header["classes"], header["sizes"], strict=True):
        outputs.append(OutputModel(tuple(classes), models[start : start + size]))
        start += size
    return StoredEstimator(plan, outputs)
