import numpy as np
import pyarrow as pa
import pytest

from models.data.encode import encode
from models.data.feeds import targets
from models.data.outputs import fit_labels, fit_numbers, fit_quantiles, infer_task_of_several
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.project_spec.blocks import Data


def data(**words):
    return Data.model_validate({"source": "x.csv", "target": ["a", "b"], **words})


def table(**columns):
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def test_labels_are_told_from_numbers():
    assert infer_task_of_several(table(a=[0, 1, 1], b=[True, False, None]), data()) == "multilabel"
    assert infer_task_of_several(table(a=[0.5, 1.0], b=[3, 4]), data()) == "regression"
    assert infer_task_of_several(table(a=[0, 1], b=[3, 4]), data(task="regression")) == "regression"
    with pytest.raises(DataError, match="'a' holds 0 and 1 alone, other targets are numbers"):
        infer_task_of_several(table(a=[0, 1], b=[3, 4]), data())
    with pytest.raises(DataError, match=r"'b': got \[3, 4\] among its values, expected 0 and 1 alone"):
        infer_task_of_several(table(a=[0, 1], b=[3, 4]), data(task="multilabel"))
    with pytest.raises(DataError, match="'b': got type string, expected numbers"):
        infer_task_of_several(table(a=[0.5, 1.5], b=["u", "v"]), data())


def test_each_target_has_its_own_scale_and_quantiles_share_one():
    both = fit_numbers(table(a=[1.0, 3.0], b=[100.0, 500.0]), data())
    assert [(each.name, each.shift, each.scale) for each in both.outputs] == [("a", 2.0, 1.0), ("b", 300.0, 200.0)]
    one = fit_quantiles(table(y=[1.0, 3.0]), data(target="y", quantiles=[0.1, 0.9]))
    assert [(each.name, each.column, each.quantile) for each in one.outputs] == [("q0.1", "y", 0.1), ("q0.9", "y", 0.9)]
    assert one.columns == ["y"]
    with pytest.raises(DataError, match="'a': every training row has 1, expected both 0 and 1"):
        fit_labels(table(a=[1, 1], b=[0, 1]), data())


def test_prepared_rows_have_every_output(run_prepare, make_spec, rows):
    rows = rows.append_column("z", pa.array([float(at % 37) for at in range(rows.num_rows)]))
    spec = make_spec(target=["z", "when"], features={"drop": ["y"]})
    prepared, preparation = run_prepare(rows, spec)
    assert (preparation.task, preparation.num_outputs) == ("regression", 2)
    tensors = encode(prepared, "train")
    assert tensors["target"].shape == (len(tensors["numeric"]), 2)
    np.testing.assert_allclose(tensors["target"].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_array_equal(tensors["value"], targets(prepared, "train"))


def test_models_are_compared_if_they_predict_the_same():
    own = fit_numbers(table(a=[1.0, 3.0], b=[1.0, 2.0]), data())
    wider = fit_numbers(table(a=[1.0, 9.0], b=[1.0, 2.0]), data())
    assert own.predicts_same(wider)
    assert not own.predicts_same(TargetEncoding(name="a"))
