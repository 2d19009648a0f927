"""The n-grams of texts as ONNX nodes. Training runs the same nodes, so both compute the same numbers.

The character tokenizer is an operator of ONNX Runtime itself (domain com.microsoft, in every build); the other
operators are ONNX's. Texts are read one by one in a loop: memory does not grow with their number, and a long text does
not make the others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from models.ngrams.model import NgramModel
from models.ngrams.vocabulary import MOST_CHARACTERS, SPACE, UNKNOWN

if TYPE_CHECKING:
    import onnxruntime
    from scipy.sparse import csr_matrix

TOKENIZER_DOMAIN = "com.microsoft"
ML_DOMAIN = "ai.onnx.ml"
_OPSETS = {"": 20, ML_DOMAIN: 5, TOKENIZER_DOMAIN: 1}
_BATCH = 64


class Nodes:
    """Nodes and constants under one prefix.

    Attributes:
        prefix: Begins the names of all nodes and constants.
        nodes: The nodes, in their order.
        constants: Tensors that the nodes read.
        types: Types of outputs that the checker cannot infer.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.types: list[onnx.ValueInfoProto] = []

    def __call__(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node of one output and return the output's name."""
        name = f"{self.prefix}{len(self.nodes)}/{op}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        """Add a tensor and return its name."""
        name = f"{self.prefix}constant/{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def text(self, value: str) -> str:
        """Add a tensor of one text (1,) and return its name."""
        name = f"{self.prefix}constant/{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, onnx.TensorProto.STRING, [1], [value.encode()]))
        return name


def text_loop(
    column: str, output: str, prefix: str, of_text: Callable[[Nodes, str], str], kind: int, shape: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """Return the nodes and the constants that turn texts `column` (batch,) into `output` (batch, *shape), one by one.

    Args:
        column: Name of the texts.
        output: Name of the result.
        prefix: Begins the names of all nodes and constants.
        of_text: Adds the nodes that turn one text (1,) into its result of `shape`; returns the result's name.
        kind: Element type of the result.
        shape: Shape of one text's result.
    """
    outer, inner = Nodes(prefix), Nodes(f"{prefix}loop/")
    row = inner("Gather", column, inner("Unsqueeze", f"{prefix}step", inner.constant(np.array([0]))), axis=0)
    result = of_text(inner, row)
    inner("Identity", f"{prefix}going")
    body = helper.make_graph(
        inner.nodes,
        "text",
        [
            helper.make_tensor_value_info(f"{prefix}step", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{prefix}going", onnx.TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info(inner.nodes[-1].output[0], onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info(result, kind, shape),
        ],
        value_info=inner.types,
    )
    rows, always = outer("Size", column), outer.constant(np.array(True))
    outer.nodes.append(helper.make_node("Loop", [rows, always], [output], name=f"{prefix}loop", body=body))
    return outer.nodes, [*outer.constants, *inner.constants]


def feature_nodes(model: NgramModel, column: str, output: str, prefix: str) -> tuple[list[Any], list[Any]]:
    """Return the nodes and the constants that turn texts `column` (batch,) into `output`, float32 (batch, features)."""

    def features(nodes: Nodes, text: str) -> str:
        return _features(nodes, model, text)

    return text_loop(column, output, prefix, features, onnx.TensorProto.FLOAT, [model.num_features])


def feature_session(model: NgramModel) -> onnxruntime.InferenceSession:
    """Return a session whose input `text` (batch,) gives `features`, float32 (batch, features)."""
    nodes, constants = feature_nodes(model, "text", "features", "n/")
    return text_session(nodes, constants, "features", onnx.TensorProto.FLOAT)


def counts(model: NgramModel, texts: Sequence[str]) -> csr_matrix:
    """Return how often each term occurs in each text, float64 (text, term), sparse."""
    from scipy.sparse import csr_matrix, vstack

    nodes = Nodes("n/")
    output = _counted(nodes, model, character_codes(nodes, model, "text"))
    session = text_session(nodes.nodes, nodes.constants, output, onnx.TensorProto.FLOAT)
    parts = [
        csr_matrix(session.run(None, {"text": np.array(part, object)})[0], dtype=np.float64) for part in _batches(texts)
    ]
    return csr_matrix(vstack(parts))


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield some texts at a time; cut, because all of a batch are padded to the longest."""
    for start in range(0, len(texts), _BATCH):
        yield [text[:MOST_CHARACTERS] for text in texts[start : start + _BATCH]]


def text_session(nodes: list[Any], constants: list[Any], output: str, kind: int) -> onnxruntime.InferenceSession:
    """Return a session whose input `text` (batch,) gives `output` of the element type `kind`."""
    import onnxruntime

    text = helper.make_tensor_value_info("text", onnx.TensorProto.STRING, ["batch"])
    graph = helper.make_graph(nodes, "texts", [text], [helper.make_tensor_value_info(output, kind, None)], constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def character_codes(nodes: Nodes, model: NgramModel, texts: str) -> str:
    """Return the codes of the characters (batch, position): one space on either side, and none beside another."""
    space = nodes.text(" ")
    padded = nodes("StringConcat", nodes("StringConcat", space, texts), space)
    characters = nodes(
        "Tokenizer", padded, domain=TOKENIZER_DOMAIN, mark=0, mincharnum=1, pad_value="", separators=[""]
    )
    # The checker does not know the tokenizer's type, and dies of a label encoder's input without one (onnx 1.23).
    shape = ["batch", "character"]
    nodes.types.append(helper.make_tensor_value_info(characters, onnx.TensorProto.STRING, shape))
    codes = nodes(
        "LabelEncoder",
        characters,
        domain=ML_DOMAIN,
        keys_strings=[character.encode() for character in model.alphabet],
        values_int64s=[model.codes[form] for form in model.alphabet.values()],
        default_int64=UNKNOWN,
    )
    start, stop, unit_step = (nodes.constant(np.array([bound], np.int64)) for bound in (0, MOST_CHARACTERS + 1, 1))
    return nodes("Slice", codes, start, stop, unit_step)


def _counted(nodes: Nodes, model: NgramModel, codes: str) -> str:
    """Return how often each term occurs (batch, term), float32."""
    order = sorted(range(len(model.terms)), key=lambda index: (len(model.terms[index]), index))
    lengths = [len(model.terms[index]) for index in order]
    longest = max(lengths)
    pool = [[model.codes[character] for character in model.terms[index]] for index in order]
    starts = np.cumsum([0, *(length * lengths.count(length) for length in range(1, longest))])
    return nodes(
        "TfIdfVectorizer",
        _single_spaced(nodes, codes),
        mode="TF",
        min_gram_length=min(lengths),
        max_gram_length=longest,
        max_skip_count=0,
        ngram_counts=starts.tolist(),
        ngram_indexes=order,
        pool_int64s=[code for term in pool for code in term],
    )


def _single_spaced(nodes: Nodes, codes: str) -> str:
    """Return the codes without spaces after a space; each row is filled up with UNKNOWN, which is in no term."""
    space, ones = nodes.constant(np.array(SPACE)), nodes.constant(np.array([1], np.int64))
    before = nodes("Pad", codes, nodes.constant(np.array([0, 1, 0, -1], np.int64)))
    drop = nodes("And", nodes("Equal", codes, space), nodes("Equal", before, space))
    keep = nodes("Cast", nodes("Not", drop), to=onnx.TensorProto.INT64)
    places = nodes("Sub", nodes("CumSum", keep, nodes.constant(np.array(1))), ones)
    shape = nodes("Shape", codes)
    width = nodes("Gather", shape, ones)
    wider = nodes("Add", shape, nodes.constant(np.array([0, 1], np.int64)))
    blank = nodes("ConstantOfShape", wider, value=helper.make_tensor("value", onnx.TensorProto.INT64, [1], [UNKNOWN]))
    return nodes("ScatterElements", blank, nodes("Where", drop, width, places), codes, axis=1)


def _features(nodes: Nodes, model: NgramModel, text: str) -> str:
    """Return the features of one text (1,), float32 (features,), by the arithmetic of `weights` in float64."""
    double = onnx.TensorProto.DOUBLE
    codes = character_codes(nodes, model, text)
    zero = nodes.constant(np.array([0], np.int64))
    occurring = nodes("Squeeze", _counted(nodes, model, codes), zero)
    terms = nodes("Squeeze", nodes("NonZero", occurring), zero)
    frequency = nodes("Cast", nodes("Gather", occurring, terms), to=double)
    weight = nodes("Gather", nodes.constant(model.idf), terms)
    weight = nodes("Mul", nodes("Add", nodes("Log", frequency), nodes.constant(np.array(1.0))), weight)
    is_word = nodes("Less", terms, nodes.constant(np.array(model.num_words, np.int64)))
    square, nothing = nodes("Mul", weight, weight), nodes.constant(np.array(0.0))
    words = nodes("ReduceSum", nodes("Where", is_word, square, nothing))
    pieces = nodes("ReduceSum", nodes("Where", is_word, nothing, square))
    norm = nodes("Sqrt", nodes("Where", is_word, words, pieces))
    factors = nodes("Cast", nodes("Gather", nodes.constant(model.projection), terms), to=double)
    projected = nodes("MatMul", nodes("Unsqueeze", nodes("Div", weight, norm), zero), factors)
    projected = nodes("Add", nodes("Squeeze", projected, zero), nodes.constant(model.bias))
    length = nodes("Cast", nodes("Gather", nodes("Shape", codes), nodes.constant(np.array([1], np.int64))), to=double)
    length = nodes("Log", nodes("Sub", length, nodes.constant(np.array(1.0))))
    shift, scale = (nodes.constant(np.array(value)) for value in model.length)
    length = nodes("Div", nodes("Sub", length, shift), scale)
    low, high = nodes.constant(model.low), nodes.constant(model.high)
    within = nodes("Min", nodes("Max", nodes("Concat", projected, length, axis=0), low), high)
    return nodes("Cast", within, to=onnx.TensorProto.FLOAT)
