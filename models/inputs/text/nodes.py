"""Texts as nodes of the exported graph: the features of their n-grams, and their words."""

from __future__ import annotations

from collections.abc import Sequence

from models.inputs.graph_builder import GraphBuilder
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.text.record import TextColumn, word_offsets
from models.ngrams.graph import TOKENIZER_DOMAIN, feature_nodes
from models.ngrams.word_graph import word_nodes


def _features(
    builder: GraphBuilder, parts: Sequence[TextColumn], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs
    outputs = []
    for place, part in enumerate(parts):
        output = f"{builder.prefix}text/{place}"
        nodes, constants = feature_nodes(files.ngrams[part.name], part.name, output, f"{output}/")
        builder.nodes += nodes
        builder.constants += constants
        outputs.append(output)
    return outputs


def _words(
    builder: GraphBuilder, parts: Sequence[TextColumn], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs
    outputs = []
    for place, (part, offsets) in enumerate(zip(parts, word_offsets(parts), strict=True)):
        output = f"{builder.prefix}words/{place}"
        model = files.ngrams[part.name]
        nodes, constants = word_nodes(model, part.name, part.length, output, f"{output}/", *offsets)
        builder.nodes += nodes
        builder.constants += constants
        outputs.append(output)
    return outputs


NODES = KindNodes({"numeric": _features, "words": _words}, opsets=((TOKENIZER_DOMAIN, 1),))
