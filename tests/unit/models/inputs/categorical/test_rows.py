import pyarrow as pa

from models.inputs.categorical.record import CategoricalInput
from models.inputs.categorical.rows import category_indices, fit_categorical, names_each_row
from models.project_spec.blocks import Features


def test_the_commonest_categories_are_kept_in_a_settled_order():
    texts = pa.chunked_array([["b", "c", "a", "c", None, "d"]])
    part = fit_categorical("x", texts, "string", Features(max_categories=3))
    assert part.categories == ["c", "a", "b"]
    assert part.cardinality == 4


def test_text_that_differs_in_every_row_names_it():
    many = [str(i) for i in range(60)]
    assert names_each_row(pa.chunked_array([many]))
    assert not names_each_row(pa.chunked_array([[*many, "1"]]))
    assert not names_each_row(pa.chunked_array([["a", "b"]]))


def test_unseen_and_missing_categories_share_index_zero():
    part = CategoricalInput(name="c", categories=["x", "y"])
    assert category_indices(pa.chunked_array([["y", "new", None, "x"]]), part).tolist() == [2, 0, 0, 1]
