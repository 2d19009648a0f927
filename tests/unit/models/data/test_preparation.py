from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inputs.categorical.record import CategoricalInput


def test_it_is_saved_and_loaded_whole(tmp_path):
    target = TargetEncoding(name="y", classes=["a", "b", "c"], dtype="string")
    made = Preparation(kind="table", task="multiclass", target=target, left_out={"id": "dropped by the spec"})
    made.save(tmp_path)
    assert Preparation.load(tmp_path) == made


def test_binary_and_regression_have_one_output():
    target = TargetEncoding(name="y", classes=["no", "yes"])
    assert Preparation(kind="table", task="binary", target=target).num_outputs == 1
    assert Preparation(kind="table", task="regression", target=TargetEncoding(name="y")).num_outputs == 1
    three = TargetEncoding(name="y", classes=["a", "b", "c"])
    assert Preparation(kind="table", task="multiclass", target=three).num_outputs == 3


def test_unseen_values_have_an_index_of_their_own():
    assert CategoricalInput(name="c", categories=["a", "b"]).cardinality == 3
