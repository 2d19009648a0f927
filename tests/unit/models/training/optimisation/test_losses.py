import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from models.data.outputs import with_outputs
from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import UserCodeError
from models.project_spec.blocks import Train
from models.training.optimisation.losses import class_weights, loss_name, make_loss, predictions
from models.training.rank import run_job


def preparation(task, classes=None, **target):
    return Preparation(kind="table", task=task, target=TargetEncoding(name="y", classes=classes, **target))


BINARY = preparation("binary", ["no", "yes"])
MULTI = preparation("multiclass", ["a", "b", "c"])
REAL = preparation("regression", shift=10.0, scale=2.0)


def test_losses_are_sums_over_the_batch():
    output, target = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    loss = make_loss(MULTI, Train(), "accuracy", target)
    assert loss(output, target) == pytest.approx(float(6 * F.cross_entropy(output, target)))
    parts = loss(output[:2], target[:2]) + loss(output[2:], target[2:])
    torch.testing.assert_close(parts, loss(output, target))


def test_each_member_of_a_net_learns_the_target_by_itself():
    each, target = torch.randn(6, 4, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    loss, weight = make_loss(MULTI, Train(), "accuracy", target), torch.rand(6)
    expected = torch.stack([loss(each[:, member], target, weight) for member in range(4)]).mean()
    torch.testing.assert_close(loss(each, target, weight), expected)
    both = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    labels = make_loss(preparation("multilabel"), Train(), "f1", both)
    flat, repeated = each[:2, :, :2].flatten(0, 1), both.repeat_interleave(4, dim=0)
    torch.testing.assert_close(labels(each[:2, :, :2], both), labels(flat, repeated) / 4)


def test_the_loss_follows_the_task_and_the_metric():
    assert loss_name(BINARY.task, BINARY.target, "roc_auc") == "bce"
    assert loss_name(REAL.task, REAL.target, "mae") == "l1"
    assert loss_name(REAL.task, REAL.target, "mape") == "relative_l1"
    assert loss_name(REAL.task, REAL.target, "pinball_0.9") == "pinball"
    assert loss_name(REAL.task, REAL.target, "rmse") == "mse"


def test_smoothing_of_two_classes_is_that_of_many():
    output, target = torch.randn(5, 1), torch.tensor([0.0, 1, 1, 0, 1])
    train = Train(label_smoothing=0.2)
    binary = make_loss(BINARY, train, "accuracy", target)(output, target)
    two = F.cross_entropy(
        torch.cat([torch.zeros(5, 1), output], 1), target.long(), label_smoothing=0.2, reduction="sum"
    )
    torch.testing.assert_close(binary, two)


def test_balanced_weights_are_one_on_average_and_favour_the_rare():
    target = torch.tensor([0.0] * 9 + [1.0])
    weights = class_weights(BINARY.target, BINARY.task, target)
    assert weights[1] == 9 * weights[0]
    assert weights[target.long()].mean() == pytest.approx(1.0)
    assert class_weights(REAL.target, REAL.task, target) is None
    balanced = make_loss(BINARY, Train(class_weights="balanced"), "roc_auc", target)
    assert balanced(torch.zeros(10, 1), target) == pytest.approx(10 * np.log(2), rel=1e-6)


def test_predictions_are_what_metrics_eat():
    assert predictions(torch.zeros(2, 1), BINARY).tolist() == [0.5, 0.5]
    assert predictions(torch.randn(4, 3), MULTI).sum(axis=1) == pytest.approx(1.0)
    assert predictions(torch.tensor([[1.0], [-1.0]]), REAL).tolist() == [12.0, 8.0]


LOGNORMAL = np.random.default_rng(0).lognormal(3, 1, 4001)


def skewed(**target):
    encoding = TargetEncoding(name="y", scale=1.0, **target)
    return preparation("regression").model_copy(update={"target": encoding}), encoding


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("mae", np.median(LOGNORMAL)),
        ("mape", np.exp(2.0)),  # the median of a lognormal with density / value: exp(mu - sigma squared)
        ("pinball_0.9", np.quantile(LOGNORMAL, 0.9)),
        ("rmse", LOGNORMAL.mean()),
    ],
)
@pytest.mark.parametrize("log_offset", [None, 0.0])
def test_the_best_constant_is_that_of_the_goal_on_either_scale(metric, expected, log_offset):
    prepared, encoding = skewed(log_offset=log_offset)
    target = torch.from_numpy(encoding.encode(LOGNORMAL)).float()
    loss = make_loss(prepared, Train(), metric, target)
    constants = np.linspace(2, 90, 881)
    values = [float(loss(torch.full((len(target), 1), float(encoding.encode(np.array(c)))), target)) for c in constants]
    assert constants[int(np.argmin(values))] == pytest.approx(expected, rel=0.05)


def test_the_gamma_loss_of_several_horizons_is_the_mean_over_them():
    prepared, encoding = skewed(log_offset=0.0)
    several = prepared.model_copy(update={"target": with_outputs(encoding, [1, 2])})
    target, output = torch.randn(5, 2), torch.randn(5, 2)
    of_both = [
        make_loss(prepared, Train(), "rmse", target[:, at])(output[:, at : at + 1], target[:, at]) for at in (0, 1)
    ]
    assert float(make_loss(several, Train(), "rmse", target)(output, target)) == pytest.approx(float(sum(of_both)) / 2)


def test_a_far_outlier_does_not_overflow_the_gamma_loss():
    prepared, _ = skewed(log_offset=0.0)
    target, output = torch.tensor([50.0, 0.0]), torch.zeros(2, 1, requires_grad=True)
    make_loss(prepared, Train(), "rmse", target)(output, target).backward()
    assert output.grad.isfinite().all()


OWN = """
import torch
import torch.nn.functional as F

def focal(output, target):
    each = F.binary_cross_entropy_with_logits(output[:, 0], target, reduction="none")
    return (1 - torch.exp(-each)) ** 2 * each

def rough(output, target):
    return (output[:, 0] - target).abs()

def mean(output, target):
    return focal(output, target).mean()

def detached(output, target):
    return focal(output, target).detach()

def broken(output, target):
    raise ValueError("no")
"""


@pytest.mark.parametrize("net", ["mlp", "trees"])
def test_an_own_loss_trains_nets_and_trees(make_job, tmp_path, net):
    (tmp_path / "loss.py").write_text(OWN)
    arguments = {"hidden": 8} if net == "mlp" else {"rounds": 20, "min_data_in_leaf": 5}
    job = make_job("table", "binary", net, arguments, epochs=4, lr=0.01, loss="./loss.py:focal", count=600)
    result = run_job(job)
    assert result.value > 0.85
    assert result.epochs[0]["val_loss"] < result.epochs[0]["val_log_loss"]


def test_a_loss_without_a_second_derivative_trains_trees(make_job, tmp_path):
    (tmp_path / "loss.py").write_text(OWN)
    arguments = {"rounds": 60, "min_data_in_leaf": 5}
    job = make_job("table", "regression", "trees", arguments, epochs=3, loss="./loss.py:rough", count=600)
    assert run_job(job).value < 1.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mean", r"gave back \(\), expected the loss of each example, shape \(2,\)"),
        ("detached", "without a gradient"),
        ("broken", "raised ValueError: no"),
    ],
)
def test_an_own_loss_that_breaks_the_contract_is_refused_before_training(make_job, tmp_path, name, message):
    (tmp_path / "loss.py").write_text(OWN)
    with pytest.raises(UserCodeError, match=message):
        run_job(make_job(epochs=1, loss=f"./loss.py:{name}"))


def test_an_own_loss_excludes_what_the_built_in_ones_do():
    with pytest.raises(ValidationError, match="label_smoothing is of the built-in losses"):
        Train(loss="./loss.py:focal", label_smoothing=0.1)
    with pytest.raises(ValidationError, match="names your own function"):
        Train(loss="focal")
