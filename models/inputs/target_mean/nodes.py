"""Means of the target as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.target_mean.record import TargetMeanInput
from models.ngrams.graph import ML_DOMAIN


def _numbers(
    builder: GraphBuilder, parts: Sequence[TargetMeanInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    """Find the number of each column's level, and with it the means by that column."""
    del inputs, files
    codes: dict[str, str] = {}
    means = []
    for number, part in enumerate(parts):
        if part.of not in codes:
            codes[part.of] = builder.node(
                "LabelEncoder",
                [part.of],
                f"target_mean/level/{number}",
                domain=ML_DOMAIN,
                keys_strings=[level.encode() for level in part.levels],
                values_int64s=list(range(1, len(part.levels) + 1)),
                default_int64=0,
            )
        table = builder.constant(f"target_mean/values/{number}", np.array(part.values, np.float32))
        means.append(builder.node("Gather", [table, codes[part.of]], f"target_mean/mean/{number}", axis=0))
    return [stacked(builder, means, "target_mean/stacked")]


NODES = KindNodes({"numeric": _numbers})
