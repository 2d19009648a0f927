"""Which columns are texts, and their features in tables."""

import numpy as np
import pyarrow as pa
import pytest

from models.data.encode import encode
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.errors import DataError
from models.ngrams.columns import feature_column, feature_matrix, holds_texts
from tests.unit.models.ngrams.conftest import LABELS, TEXTS


def test_sentences_are_texts_and_names_codes_and_categories_are_none():
    def is_text(*values: str) -> bool:
        return holds_texts(pa.chunked_array([[value.format(row) for row in range(60) for value in values]]))

    assert is_text("the film number {} was good")
    assert is_text("这是第{}部很好看的电影我很喜欢")
    assert not is_text("user-{}")
    assert not is_text("a b c d")
    assert not is_text("https://example.com/{}/a-long-path-of-one-word")
    assert not holds_texts(pa.chunked_array([["a text of words"]]))


def test_features_of_rows_survive_filters_and_chunks():
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = pa.chunked_array([feature_column(features[:2]), feature_column(features[2:])])
    assert (feature_matrix(column, 3) == features).all()
    kept = column.filter(pa.array([False, True, True, False]))
    assert (feature_matrix(kept, 3) == features[1:3]).all()


def test_a_column_of_texts_is_an_input_of_a_table(make_spec, tmp_path):
    table = pa.table({"note": [*TEXTS[:-1], None], "x": np.arange(80.0), "y": LABELS})
    rows, preparation = prepare_table(table, make_spec(), tmp_path)
    assert [part.name for part in preparation.texts] == ["note"]
    write_rows(rows, preparation, tmp_path)
    assert Preparation.load(tmp_path) == preparation
    numeric = encode(tmp_path, "test")["numeric"]
    assert numeric.shape == (preparation.rows["test"], 1 + preparation.texts[0].num_features)


def test_what_is_no_text_cannot_be_declared_one(make_spec, tmp_path):
    table = pa.table({"note": np.arange(80), "y": LABELS})
    with pytest.raises(DataError, match=r"'note' is named, but its type is int64, no text"):
        prepare_table(table, make_spec(features={"kinds": {"note": "text"}}), tmp_path)
