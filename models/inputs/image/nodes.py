"""Images as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.inputs.image.record import ImageInput
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles


def _image(
    builder: GraphBuilder, parts: Sequence[ImageInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs, files
    (pixels,) = parts
    mean = builder.constant("image/mean", np.array(pixels.mean, np.float32).reshape(-1, 1, 1))
    std = builder.constant("image/std", np.array(pixels.std, np.float32).reshape(-1, 1, 1))
    white = builder.constant("image/white", np.array(255, np.float32))
    channels_first = builder.node("Transpose", ["image"], "image/channels_first", perm=[0, 3, 1, 2])
    levels = builder.node("Cast", [channels_first], "image/levels", to=onnx.TensorProto.FLOAT)
    unit = builder.node("Div", [levels, white], "image/unit")
    centred = builder.node("Sub", [unit, mean], "image/centred")
    return [builder.node("Div", [centred, std], "image/scaled", output=CORE_PREFIX + "image")]


NODES = KindNodes({"image": _image})
