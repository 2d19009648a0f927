"""A served model that needs no training: its folder as the registry gives it, and the cache that holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from models.data.preparation import Preparation, TextInput
from models.data.target_encoding import TargetEncoding
from models.export.graph import assemble
from models.files import sha256, write_json
from models.inference.names import BACKGROUND_FILE
from models.inputs.categorical.record import CategoricalInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Image
from models.project_spec.window import Window
from tasks.host.workspace import Project

CLASSES = {"binary": ["no", "yes"], "multiclass": ["no", "perhaps", "yes"], "image": ["no", "yes"]}
ALPHABET = "\n abc"
CORES = {"table": "numeric", "image": "image", "series": "series", "text": "tokens"}


def preparation_of(task: str) -> Preparation:
    """One number and one category, as `tests.conftest.ROWS` has them; or `image`, `series` and `language`."""
    classes = CLASSES.get(task)
    target = TargetEncoding(name="y", classes=classes, dtype="string" if classes else "float")
    if task == "image":  # 2 x 3 pixels
        image = Image(column="picture", height=2, width=3)
        pixels = ImageInput(name=image.column, image=image, mean=[0.5], std=[0.5])
        return Preparation(kind="image", task="binary", target=target, inputs=[pixels])
    numeric = [NumericInput(name="x", fill=0.0)]
    if task == "series":  # three steps of x and y
        both = [*numeric, NumericInput(name="y", fill=0.0)]
        return Preparation(kind="series", task="regression", target=target, inputs=both, window=Window(length=3))
    if task == "language":
        characters = TextInput(column="line", length=8, stride=8, alphabet=ALPHABET)
        target = TargetEncoding(name="the next character")
        return Preparation(kind="text", task="language", target=target, characters=characters)
    category = CategoricalInput(name="c", categories=["u", "v", "w"])
    return Preparation(kind="table", task=task, target=target, inputs=[*numeric, category])


BACKGROUND = {
    "table": {"x": [-1.0, 0.0, None, 2.0], "c": ["u", "v", "", "w"]},
    "series": {"series": [[[at, -at]] * 3 for at in (-1.0, 1.0)]},
}
"""What explanations of them compare with."""


def write_served(folder: Path, task: str = "binary", preparation: Preparation | None = None) -> Preparation:
    """`model.onnx` and `preparation.json` of a model whose k-th output is k + 1 times the sum of its numbers.

    Of text: in which the character after the one that was read is the likeliest to follow it.
    """
    preparation = preparation or preparation_of(task)
    core = CORES[preparation.kind]
    stretch = GraphBuilder("net/")
    raw = _follows(stretch) if task == "language" else _sum(stretch, preparation, f"core/{core}")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(assemble(preparation, stretch, raw, {}), folder / "model.onnx")
    preparation.save(folder)
    if preparation.kind in BACKGROUND:
        write_json(folder / BACKGROUND_FILE, BACKGROUND[preparation.kind])
    return preparation


def _sum(stretch: GraphBuilder, preparation: Preparation, core: str) -> str:
    num_steps = preparation.window.length if preparation.window else 1
    width = 6 if preparation.kind == "image" else num_steps * preparation.num_numeric
    factors = np.tile(np.arange(1, preparation.num_outputs + 1, dtype=np.float32), (width, 1))
    flat = stretch.node("Flatten", [core], "flat", axis=1)
    return stretch.node("MatMul", [flat, stretch.constant("factors", factors)], "raw")


def _follows(stretch: GraphBuilder) -> str:
    size = len(ALPHABET) + 1
    table = np.roll(np.eye(size, dtype=np.float32), 1, axis=1) * 4
    return stretch.node("Gather", [stretch.constant("table", table), "core/tokens"], "raw", axis=0)


def put_in_cache(
    project: Project, name: str, task: str = "binary", number: str = "1", preparation: Preparation | None = None
) -> Path:
    """Version `number` as the champion that the cache holds; the registry is not needed."""
    place = project.workspace.cache / "models" / name
    write_served(place / number, task, preparation)
    hashes = {one: sha256(place / number / one) for one in ("model.onnx", "preparation.json")}
    write_json(place / f"{number}.json", hashes)
    write_json(place / "aliases.json", {"champion": number})
    return place / number
