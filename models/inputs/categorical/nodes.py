"""Categories as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

from models.inputs.categorical.record import CategoricalInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.ngrams.graph import ML_DOMAIN


def _indices(
    builder: GraphBuilder, parts: Sequence[CategoricalInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs, files
    return [_index(builder, part) for part in parts]


def _index(builder: GraphBuilder, part: CategoricalInput) -> str:
    # An encoder needs at least one key; a column without categories gets one that maps to "unseen" as well.
    keys = part.categories or [""]
    values = range(1, len(keys) + 1) if part.categories else [0]
    return builder.node(
        "LabelEncoder",
        [part.name],
        f"categorical/index/{part.name}",
        domain=ML_DOMAIN,
        keys_strings=[key.encode() for key in keys],
        values_int64s=list(values),
        default_int64=0,
    )


NODES = KindNodes({"categorical": _indices})
