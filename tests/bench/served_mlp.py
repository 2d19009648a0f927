"""The model that the servers are compared on: 13 numbers and two categories, as the flights have, through an MLP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.export.graph import assemble
from models.inputs.categorical.record import CategoricalInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.numeric.record import NumericInput

NUMBERS, CATEGORIES, HIDDEN = 13, 2, (256, 256)
ROW = {
    **{f"x{at}": round(0.37 * at - 1.5, 3) for at in range(NUMBERS)},
    **{f"c{at}": "b" for at in range(CATEGORIES)},
}


def write(folder: Path, seed: int = 0) -> None:
    """`model.onnx` and `preparation.json` of a binary classifier with random weights."""
    preparation = Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="y", classes=["no", "yes"], dtype="string"),
        inputs=[
            *[NumericInput(name=f"x{at}", fill=0.0) for at in range(NUMBERS)],
            *[CategoricalInput(name=f"c{at}", categories=["a", "b", "c"]) for at in range(CATEGORIES)],
        ],
    )
    stretch, random = GraphBuilder("net/"), np.random.default_rng(seed)
    value, width = "core/numeric", NUMBERS
    for at, size in enumerate((*HIDDEN, preparation.num_outputs)):
        weights = random.standard_normal((width, size)).astype(np.float32) / np.float32(np.sqrt(width))
        value = stretch.node("MatMul", [value, stretch.constant(f"weights{at}", weights)], f"product{at}")
        value = stretch.node("Relu", [value], f"active{at}") if at < len(HIDDEN) else value
        width = size
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(assemble(preparation, stretch, value, {}), folder / "model.onnx")
    preparation.save(folder)
