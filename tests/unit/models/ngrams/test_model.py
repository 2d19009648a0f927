"""A model of n-grams is stored and loaded."""

from models.ngrams.model import load_ngrams, save_ngrams


def test_a_model_is_stored_and_loaded_unchanged(learnt, tmp_path):
    save_ngrams({"ñ/1": learnt[0]}, tmp_path)
    assert load_ngrams(tmp_path) == {"ñ/1": learnt[0]}
    assert load_ngrams(tmp_path / "absent") == {}
