import functools

import pytest

from models.distributed.world import World
from models.errors import TrainingError
from models.training import loop
from models.training.checkpoints.checkpoint import newest
from models.training.checkpoints.finished import identity
from models.training.costs.summary import MEASURED
from models.training.job import EpochReport
from models.training.rank import run_job
from tests.tiny_jobs import job_maker
from tests.wide import wide


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


REGIMES = {
    "mlp": ("table", "binary", {"hidden": 16, "dropout": 0.3, "norm": "batch"}, {}),
    "cnn": (
        "image",
        "multiclass",
        {"width": 4, "hidden": 8, "dropout": 0.3},
        {
            "augment": {
                "rotate_degrees": 20.0,
                "shift_pixels": 1,
                "mixup_alpha": 0.3,
                "function": "tests.tiny_jobs:noisy",
            }
        },
    ),
    "resnet": (
        "image",
        "multiclass",
        {"width": 4, "stages": 2},
        {"augment": {"shift_pixels": 1, "flip": True}, "schedule": "one_cycle", "batch": 16},
    ),
    "gru": (
        "series",
        "regression",
        {"hidden": 8, "layers": 2, "dropout": 0.3},
        {"augment": {"function": "tests.tiny_jobs:noisy_columns"}},
    ),
    "accumulated": ("table", "multiclass", {"hidden": 8}, {"accumulate": 2, "optimiser": "sgd"}),
    "muon": ("table", "binary", {"hidden": 8}, {"optimiser": "muon"}),
    "adafactor": (
        "table",
        "binary",
        {"hidden": 8},
        {"optimiser": "adafactor", "augment": {"noise": 0.1, "swap": 0.1, "function": "tests.tiny_jobs:noisy_columns"}},
    ),
    "plateau": (
        "table",
        "binary",
        {"hidden": 8},
        {"schedule": "plateau", "plateau_patience": 1, "lr": 1e-9, "optimiser": "nadam"},
    ),
    "ema": ("table", "multiclass", {"hidden": 8, "norm": "batch"}, {"ema": 0.9, "optimiser": "radam"}),
    "bf16": ("table", "multiclass", {"hidden": 8}, {"precision": "bf16"}),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a run of a regime ends with that nobody kills, with two windows an epoch."""

    @functools.cache
    def whole(regime):
        kind, task, arguments, train = REGIMES[regime]
        make_job = job_maker(tmp_path_factory.mktemp("whole"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(loop, "WINDOW", 2)
            return run_job(make_job(kind, task, arguments=arguments, count=100, **train))

    return whole


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("checkpoint", [wide(1), 3, wide(4)])
def test_killed_after_any_checkpoint_gives_the_same_bits(make_job, monkeypatch, whole, regime, checkpoint):
    """Two windows an epoch, so that the middle of an epoch is among the moments."""
    kind, task, arguments, train = REGIMES[regime]
    monkeypatch.setattr(loop, "WINDOW", 2)
    expected = whole(regime)
    job = make_job(kind, task, arguments=arguments, folder="killed", count=100, **train)
    taken = []

    def counting(session):
        original(session)
        taken.append(session.progress.step)
        if len(taken) == checkpoint:
            session.saver.settle()
            raise Killed

    original = loop.TrainingSession.checkpoint
    monkeypatch.setattr(loop.TrainingSession, "checkpoint", counting)
    with pytest.raises(Killed):
        run_job(job)
    result = run_job(job)
    assert result.resumed_from == [taken[checkpoint - 1]]
    assert result.weights_sha256 == expected.weights_sha256
    for got, wanted in zip(result.epochs, expected.epochs, strict=True):
        assert {**got, **dict.fromkeys(MEASURED, 0)} == {**wanted, **dict.fromkeys(MEASURED, 0)}
    assert not job.checkpoint_folder.exists()


@pytest.mark.parametrize(
    ("kind", "task", "net", "arguments"),
    [
        ("table", "binary", "mlp", {"hidden": 16}),
        wide("table", "multiclass", "tabm", {"hidden": 16}),
        ("table", "multiclass", "transformer", {"width": 16, "layers": 1}),
        ("table", "regression", "mlp", {"hidden": 16}),
        ("image", "multiclass", "cnn", {"width": 8}),
        ("image", "multiclass", "resnet", {"width": 8}),
        ("series", "regression", "gru", {"hidden": 16}),
        wide("series", "regression", "lstm", {"hidden": 16}),
    ],
)
def test_every_net_learns(make_job, kind, task, net, arguments):
    result = run_job(make_job(kind, task, net, arguments, epochs=8))
    assert result.epochs[-1]["val_loss"] < 0.5 * result.epochs[0]["val_loss"] or result.value > 0.9
    assert (result.value < 0.6) if task == "regression" else (result.value > 0.85)


def test_an_epoch_reports_what_was_agreed(make_job):
    seen: list[EpochReport] = []
    run_job(make_job(arguments={"hidden": 8}), lambda epoch: seen.append(epoch) or True)
    assert [(epoch.epoch, epoch.epochs) for epoch in seen] == [(1, 3), (2, 3), (3, 3)]
    score = {"val_accuracy", "val_accuracy_se", "val_log_loss"}
    assert set(seen[0].values) - MEASURED == {"train_loss", "val_loss", *score, "lr"}
    assert {"samples_per_s", "flops", "device_s", "data_wait_s", "peak_memory_mb"} <= set(seen[0].values)


def test_the_caller_may_stop_and_the_best_weights_stay(make_job):
    job = make_job(arguments={"hidden": 8}, epochs=20)
    result = run_job(job, lambda epoch: epoch.epoch < 4)
    assert result.pruned
    assert len(result.epochs) == 4
    assert result.value == max(epoch["val_accuracy"] for epoch in result.epochs)


def test_patience_stops_after_so_many_epochs_without_a_better_one(make_job):
    result = run_job(make_job(arguments={"hidden": 8}, epochs=60, patience=3))
    assert len(result.epochs) == result.best_epoch + 3
    assert not result.pruned


def test_identity_is_plain_data(make_job):
    assert identity(make_job())["train"]["epochs"] == 3


POISONED = """
import torch

class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.inner = torch.nn.Linear(num_numeric, 4)
        self.middle = Poison()
        self.outer = torch.nn.Linear(4, num_outputs)

    def forward(self, numeric):
        return self.outer(self.middle(self.inner(numeric)))


class Poison(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x / 0 if self.calls == 17 else x
"""


def test_the_step_and_the_first_bad_layer_are_named(make_job, tmp_path):
    (tmp_path / "net.py").write_text(POISONED)
    job = make_job(net="./net.py:Net", count=200, batch=20, epochs=5)
    with pytest.raises(
        TrainingError, match=r"step 16 \(epoch 2\).*output of layer net.middle \(Poison\).*checkpoint of step 10"
    ):
        run_job(job)
    assert newest(job.checkpoint_folder, World()).name == f"step-{10:012d}"


def test_an_update_that_blew_up_is_named(make_job):
    job = make_job(arguments={"hidden": 8}, lr=1e38, optimiser="sgd", clip_norm=None, momentum=0.0)
    with pytest.raises(TrainingError, match=r"not finite at step \d+.*lower train.lr \(now 1e\+38\)"):
        run_job(job)
