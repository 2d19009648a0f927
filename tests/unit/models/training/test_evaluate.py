import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.distributed.world import World
from models.training.evaluate import evaluate
from models.training.rank import run_job
from models.training.session import open_session
from tests.wide import wide

KINDS = [("table", "binary"), ("image", "multiclass"), ("series", "regression"), ("text", "language")]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_scores_are_those_of_the_whole_validation_split(make_job, kind, task):
    session = open_session(make_job(kind, task), World())
    scores = evaluate(session)
    rows = torch.arange(len(session.validation))
    session.net.eval()
    with torch.no_grad():
        output = session.net(**session.validation.gather(rows))
    target = session.validation.targets()
    assert scores["val_loss"] == pytest.approx(float(session.loss(output, target)) / len(rows), rel=1e-5)
    score = {f"val_{session.metric.name}_se", "val_log_loss"} if task in ("binary", "multiclass") else set()
    assert set(scores) == {"val_loss", f"val_{session.metric.name}", *score}


@pytest.mark.parametrize(("net", "arguments", "most"), [("tabm", {"members": 16}, 256), ("mlp", {}, 4096)])
def test_a_pass_counts_the_rows_of_all_members(make_job, net, arguments, most):
    """Else the evaluation of TabM holds several times the memory of its training."""
    session = open_session(make_job("table", "binary", net, {"hidden": 4, **arguments}, count=20_000), World())
    passes = []
    session.net.register_forward_pre_hook(
        lambda _, args, inputs: passes.append(len(inputs["numeric"])), with_kwargs=True
    )
    evaluate(session)
    assert (max(passes), sum(passes)) == (most, 5_000)


def test_a_pass_has_fewer_rows_where_a_net_reads_words(make_job):
    """Else the evaluation of a small batch's training holds several times its memory."""
    session = open_session(make_job("table", "binary", "transformer", {"width": 4, "heads": 1}, count=5_000), World())
    session.validation.tensors["words"] = torch.zeros(1_250, 3, 2, dtype=torch.int32)
    passes = []
    session.net.register_forward_pre_hook(lambda _, args, inputs: passes.append(len(inputs["words"])), with_kwargs=True)
    evaluate(session)
    assert passes == [512, 512, 226]


OWN = "def zeros(target, prediction):\n    return float((target == 0).sum())\n"


@pytest.mark.parametrize("net", ["mlp", "trees"])
def test_an_own_metric_sees_whole_numbers_as_whole(make_job, tmp_path, net):
    (tmp_path / "own.py").write_text(OWN)
    job = make_job("table", "regression", net, epochs=1)
    job = job.model_copy(update={"metric": "./own.py:zeros", "direction": "maximize"})
    tensors = load_file(job.tensors["validation"])
    tensors["value"] = (torch.arange(50) % 5).double()
    tensors["target"] = ((tensors["value"] - 2.1) / 1.3).float()
    save_file(tensors, job.tensors["validation"])
    assert run_job(job).value == 10.0


@pytest.mark.parametrize("net", [wide("decoder"), "gru"])
def test_a_text_is_learnt_and_its_loss_is_its_bits(make_job, net):
    job = make_job("text", "language", net=net, batch=8, epochs=4, lr=0.01, epochs_per_pass=2)
    result = run_job(job)
    first, last = result.epochs[0], result.epochs[-1]
    assert last["val_bits_per_char"] < 1.6 < math.log2(6), "six characters by their shares"
    for epoch in (first, last):
        assert epoch["val_loss"] == pytest.approx(epoch["val_bits_per_char"] * math.log(2), rel=1e-6)
    assert result.environment["steps_per_epoch"] == 100 // 8 + 1


def test_evaluating_leaves_training_as_it_was(make_job):
    session = open_session(make_job("table"), World())
    state, generator = session.net.state_dict(), torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in state.items()}
    evaluate(session)
    assert session.net.training
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(before[name], tensor) for name, tensor in session.net.state_dict().items())


def weighted(make_job, net, weights, folder):
    """A job whose rows have weights: 0 for those whose labels are turned round."""
    job = make_job("table", "binary", net, {"hidden": 8} if net == "mlp" else {"rounds": 10}, folder=folder, count=400)
    tensors = {}
    for split in ("train", "validation"):
        held = load_file(job.tensors[split])
        is_wrong = torch.arange(len(held["target"])) % 2 == 0
        target = torch.where(is_wrong, 1 - held["target"], held["target"])
        weight = torch.where(is_wrong, weights, 1.0 + (weights == 0))
        path = job.tensors[split].with_name(f"{folder}-{split}.safetensors")
        save_file({**held, "target": target, "weight": weight.float()}, path)
        tensors[split] = path
    return job.model_copy(update={"tensors": tensors})


@pytest.mark.parametrize("net", ["mlp", "trees"])
def test_rows_of_weight_zero_count_neither_in_the_loss_nor_in_the_metric(make_job, net):
    blind = run_job(weighted(make_job, net, 1.0, "blind"))
    seeing = run_job(weighted(make_job, net, 0.0, "seeing"))
    assert blind.value < 0.7
    assert seeing.value > 0.85


def test_the_weighted_score_is_that_of_repeated_rows(make_job):
    session = open_session(weighted(make_job, "mlp", 0.0, "whole"), World())
    scores = evaluate(session)
    session.net.eval()
    rows = torch.arange(len(session.validation))
    kept = rows[session.validation.weights() > 0]
    with torch.no_grad():
        output = session.net(**session.validation.gather(kept))
    target = session.validation.gather_target(kept)
    assert scores["val_loss"] == pytest.approx(float(session.loss(output, target)) / len(kept), rel=1e-5)
    assert scores["val_accuracy"] == pytest.approx(float(((output[:, 0] > 0) == (target > 0.5)).double().mean()))
