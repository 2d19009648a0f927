import pytest
from pydantic import ValidationError

from models.project_spec.blocks import Spec, Train
from models.project_spec.methods import Start


def spec(**blocks):
    return Spec.model_validate(
        {"name": "a", "data": {"source": "x.csv", "target": "y", **blocks.pop("data", {})}, **blocks}
    )


def test_a_version_number_is_a_name_too():
    assert Start(weights=3).weights == "3"


def test_auto_is_a_batch_and_survives_the_search(tmp_path):
    from models.training.search_space import with_params

    train = Train(batch="auto", pretrain={"epochs": 2}, start={"freeze": ["a"]})
    assert train.batch == 0
    assert with_params(spec().model, train, {"train.lr": 0.1})[1] == train.model_copy(update={"lr": 0.1})


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"train": {"pseudo_labels": {}}}, "data.unlabelled: true"),
        ({"train": {"nesterov": True}}, "nesterov is of sgd"),
        ({"train": {"start": {"lr_scale": {"a": 0.0}}}}, "use `freeze`"),
        ({"train": {"schedule": "cosin"}}, "one_cycle"),
        (
            {
                "data": {"kind": "series", "window": {"length": 3}, "split": {"by": "time", "column": "t"}},
                "train": {"pretrain": {}},
            },
            "pretrain is for tables and images",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(blocks, said):
    with pytest.raises(ValidationError, match=said):
        spec(**blocks)
