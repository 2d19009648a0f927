"""The graph finds the words that a plain search finds, text by text."""

import re

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from models.ngrams.graph import ML_DOMAIN, TOKENIZER_DOMAIN
from models.ngrams.model import NgramModel
from models.ngrams.vocabulary import MOST_CHARACTERS, WITHOUT_SPACES, alphabet_of, terms_of
from models.ngrams.word_graph import MOST_WORDS, usual_length, word_ids, word_nodes
from models.ngrams.words import word_index
from tests.unit.models.ngrams.conftest import plainly_folded

LONGEST = "x" * 37 + "y"
LATIN = ["film", "films", "filmed", "Über", "naïvely", "don't", "x1", "😀😀", LONGEST]
WORDS = [*LATIN, "很好看的电影", "很", "ภาษาไทย", "カメラ"]
UNKNOWN_WORDS = ["filmé", "flim", "电很", "Ж", "很Ж好", "x1很x1", f"{LONGEST}y", "z" * 60, "fil", "😀", "\0", "龘龘"]


@pytest.fixture(scope="module")
def model() -> NgramModel:
    texts = [" ".join(WORDS), " ".join(reversed(WORDS))] * 2
    alphabet = alphabet_of(texts)
    return NgramModel(alphabet, *terms_of(texts, alphabet), *(np.zeros(0),) * 6)


def plain_ids(model: NgramModel, text: str, length: int) -> list[list[int]]:
    index, words = word_index(model), []
    for token in plainly_folded(model, text[:MOST_CHARACTERS]).split():
        for run in re.findall(f"[{WITHOUT_SPACES}]+|[^{WITHOUT_SPACES}]+", token):
            dense = re.match(f"[{WITHOUT_SPACES}]", run)
            words += [run[at : at + 2] for at in range(len(run))] if dense else [run]
    stems = [index.stems.get(word[:4], 1) if len(word) > 4 else 1 for word in words]
    ids = [[index.words.get(word, 1), stem] for word, stem in zip(words, stems, strict=True)]
    return [*ids, *[[0, 0]] * length][:length]


PARTS = st.one_of(
    st.sampled_from([*WORDS, *UNKNOWN_WORDS, " ", "  ", ", ", "!", "\n"]),
    st.text(max_size=6),
    st.text("film很好x \U00020000", max_size=8),
)


@given(st.lists(st.lists(PARTS, max_size=30).map("".join), min_size=1, max_size=8), st.sampled_from([1, 5, 40]))
def test_words_are_those_of_a_plain_search(model, texts, length):
    assert word_ids(model, texts, length).tolist() == [plain_ids(model, text, length) for text in texts]


def test_words_of_long_empty_and_cut_texts_are_those_of_a_plain_search(model):
    texts = ["", " ", "!?", *WORDS, *UNKNOWN_WORDS, "film 很好" * 1000, "x" * 6000, "很" * 6000]
    texts += [" " * spaces + word for spaces in (4995, 4996, 4998, 4999, 5000) for word in ("film", "films", "很好")]
    ids = word_ids(model, texts, 300)
    assert ids.dtype == np.int32
    assert ids.tolist() == [plain_ids(model, text, 300) for text in texts]
    assert word_ids(model, [], 3).shape == (0, 3, 2)


def test_known_words_and_stems_have_their_ids_and_others_the_id_of_unknown(model):
    words, stems = word_index(model).words, word_index(model).stems
    ids = word_ids(model, [f"FILMED, filmhaus 很好X {LONGEST} {LONGEST}y film"], 8)[0].tolist()
    very_good, of_longest = [words["很好"], 1], stems["xxxx"]
    assert ids[:2] == [[words["filmed"], stems["film"]], [1, stems["film"]]]
    assert ids[2:5] == [very_good, [1, 1], [1, 1]]
    assert ids[5:] == [[words[LONGEST], of_longest], [1, of_longest], [words["film"], 1]]
    assert min(*words.values(), *stems.values()) == 2


def test_a_vocabulary_without_words_or_stems_knows_none():
    for terms, num_words, first in ((["ab"], 0, 1), ([" ab "], 1, 2)):
        model = NgramModel(alphabet_of([]), terms, num_words, *(np.zeros(0),) * 6)
        assert word_ids(model, ["ab", ""], 2).tolist() == [[[first, 1], [0, 0]], [[0, 0], [0, 0]]]


def test_the_checker_takes_the_nodes_and_ids_are_moved_by_the_offsets(model):
    import onnxruntime

    nodes, constants = word_nodes(model, "text", 9, "ids", "w/", word_offset=100, stem_offset=1000)
    text = helper.make_tensor_value_info("text", onnx.TensorProto.STRING, ["batch"])
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", 9, 2])
    graph = helper.make_graph(nodes, "texts", [text], [ids], constants)
    opsets = [helper.make_opsetid(*each) for each in (("", 20), (ML_DOMAIN, 5), (TOKENIZER_DOMAIN, 1))]
    document = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(document, full_check=True)
    session = onnxruntime.InferenceSession(document.SerializeToString(), providers=["CPUExecutionProvider"])
    texts = ["film filmed z 很好 naïvely", ""]
    plain = word_ids(model, texts, 9)
    moved = session.run(None, {"text": np.array(texts, object)})[0]
    assert (moved == np.where(plain > 1, plain + np.array([100, 1000]), plain)).all()


def test_the_usual_length_is_that_of_most_texts_within_its_bounds(model):
    assert usual_length(model, []) == usual_length(model, ["a film"] * 50) == usual_length(model, [""]) == 8
    assert usual_length(model, ["film " * 10] * 95 + ["film " * 60] * 5) == 10
    assert usual_length(model, ["film " * 10] * 94 + ["film " * 60] * 6) == 60
    assert usual_length(model, ["film " * 400]) == MOST_WORDS
    assert usual_length(model, ["很好看" * 10] * 3000) == 30
