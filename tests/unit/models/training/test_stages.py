import json

import lightgbm
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.data.preparation import Preparation, WindowReference
from models.distributed.world import World
from models.errors import DataError, UsageError
from models.training import loop, stages
from models.training.batches.examples import open_examples
from models.training.checkpoints.weights import weights_sha256
from models.training.job import TREES_FILE, WEIGHTS_FILE
from models.training.optimisation.fine_tuning import origin_of
from models.training.rank import run_job
from models.training.stages import make_ready
from models.training.tree_inputs import tree_inputs
from tests.tiny_jobs import job_maker
from tests.wide import wide


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


ALL = {
    "pretrain": {"epochs": 2, "mask": 0.4},
    "pseudo_labels": {"confidence": 0.55, "rounds": 2},
    "ema": 0.9,
    "epochs": 2,
}


def asked(make_job, folder="job", **more):
    return make_job("table", "binary", arguments={"hidden": 8}, folder=folder, count=100, unlabelled=40, **ALL, **more)


def test_each_stage_is_heard_under_its_own_names_and_the_result_tells_what_it_found(make_job):
    heard = []
    result = run_job(asked(make_job), lambda epoch: heard.append(epoch) or epoch.stage == "train")
    assert [(epoch.stage, epoch.epoch) for epoch in heard] == [
        (stage, epoch) for stage in ("pretrain", "teacher-1", "teacher-2", "train") for epoch in (1, 2)
    ]
    assert {"pretrain_loss", "val_pretrain_loss", "pretrain_lr"} <= set(heard[0].values)
    assert {"teacher_train_loss", "teacher_val_accuracy"} <= set(heard[2].values)
    first, second = result.before["pseudo_labels"]
    assert first["unlabelled"] == second["unlabelled"] == 40
    assert 0 < first["taken"] <= 40
    assert result.environment["train_examples"] == 100 + second["taken"]
    assert not result.pruned


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the job ends with if nobody kills it, with two or three windows an epoch."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "WINDOW", 2)
        return run_job(asked(job_maker(tmp_path_factory.mktemp("whole"))))


@pytest.mark.parametrize("checkpoint", [wide(2), 7, wide(14)])
def test_killed_in_any_stage_gives_the_same_bits(make_job, monkeypatch, whole, checkpoint):
    """Two or three windows an epoch, so that these checkpoints are in different stages."""
    monkeypatch.setattr(loop, "WINDOW", 2)
    job, taken = asked(make_job, "killed"), []

    def counting(session):
        original(session)
        taken.append(session.job.folder.name)
        if len(taken) == checkpoint:
            raise Killed

    original = loop.TrainingSession.checkpoint
    monkeypatch.setattr(loop.TrainingSession, "checkpoint", counting)
    with pytest.raises(Killed):
        run_job(job)
    assert taken[-1] == {2: "pretrain", 7: "teacher-1", 14: "killed"}[checkpoint]
    assert run_job(job).weights_sha256 == whole.weights_sha256


def test_killed_between_two_stages_gives_the_same_bits(make_job, monkeypatch):
    expected = run_job(asked(make_job, "whole"))
    job = asked(make_job, "killed")
    with monkeypatch.context() as patched:
        patched.setattr(stages, "give_labels", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            run_job(job)
    times = (job.folder / "pretrain" / WEIGHTS_FILE).stat().st_mtime_ns
    assert run_job(job).weights_sha256 == expected.weights_sha256
    assert times == (job.folder / "pretrain" / WEIGHTS_FILE).stat().st_mtime_ns


def test_the_net_begins_with_what_was_pretrained(make_job):
    job = make_job(arguments={"hidden": 8}, pretrain={"epochs": 1}, epochs=1)
    run_job(job)
    ready, before = make_ready(job, World(), lambda _: True, run_job)
    assert before == {}
    assert ready.start.sha256 == weights_sha256(job.folder / "pretrain" / WEIGHTS_FILE)
    assert ready.train.pretrain is None
    plain = run_job(make_job(arguments={"hidden": 8}, folder="plain", epochs=1))
    assert plain.weights_sha256 != weights_sha256(job.folder / WEIGHTS_FILE)


def test_a_batch_found_once_is_kept(make_job, monkeypatch):
    monkeypatch.setattr(stages, "find_batch", lambda *_: {"batch": 16, "micro_batch": 16, "tries": 3})
    job = make_job(arguments={"hidden": 8}, batch="auto", epochs=1)
    result = run_job(job)
    assert result.before["batch"]["batch"] == result.environment["batch"] == 16
    assert json.loads((job.folder / "batch.json").read_text())["tries"] == 3
    monkeypatch.setattr(stages, "find_batch", lambda *_: pytest.fail("found again"))
    (job.folder / "result.json").unlink()
    assert run_job(job).weights_sha256 == result.weights_sha256


def test_without_weights_to_begin_with_nothing_is_frozen(make_job):
    job = make_job(arguments={"hidden": 8}, start={"freeze": ["trunk.*", "embeddings.*"]}, epochs=1)
    assert (
        run_job(job).weights_sha256 == run_job(make_job(arguments={"hidden": 8}, folder="b", epochs=1)).weights_sha256
    )


def test_a_regression_and_missing_rows_are_refused(make_job):
    with pytest.raises(UsageError, match="regression"):
        run_job(make_job("table", "regression", arguments={"hidden": 8}, unlabelled=20, pseudo_labels={}, epochs=1))
    with pytest.raises(DataError, match="no row without a target"):
        run_job(make_job(arguments={"hidden": 8}, folder="none", pseudo_labels={}, epochs=1))


def worlds(folder, seed, count, shift):
    """Two tasks in one table: which number decides depends on the category, and the old rows are of the first."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(count, 3)).astype(np.float32)
    kind = (rng.random(count) < shift).astype(np.int32) if 0 < shift < 1 else np.full(count, shift, np.int32)
    target = np.where(kind == 0, numeric[:, 0] > 0, numeric[:, 0] < 0).astype(np.int64)
    tensors = {"numeric": numeric, "categorical": kind[:, None] + 1, "target": target}
    save_file(tensors, folder)
    return tensors


@pytest.mark.wide
def test_replay_keeps_what_would_be_forgotten(make_job, tmp_path):
    """Old rows answer one way and new rows the other; without replay, going on with the new forgets the old."""
    old = make_job(arguments={"hidden": 32, "dropout": 0.0}, folder="old", epochs=12)
    for side, seed in (("train", 0), ("validation", 1)):
        worlds(tmp_path / f"old-{side}.safetensors", seed, 600, 0)
    old = old.model_copy(update={"tensors": {s: tmp_path / f"old-{s}.safetensors" for s in ("train", "validation")}})
    assert run_job(old).value > 0.95
    parts = [worlds(tmp_path / "x.safetensors", 2, 600, 0), worlds(tmp_path / "y.safetensors", 3, 400, 1)]
    save_file({k: np.concatenate([p[k] for p in parts]) for k in parts[0]}, tmp_path / "both.safetensors")
    start = origin_of(old.folder / WEIGHTS_FILE, "the old")
    value = {}
    for replay in (0.0, 0.5):
        job = make_job(
            arguments={"hidden": 32, "dropout": 0.0},
            folder=f"new-{replay}",
            epochs=12,
            start={},
            recent={"share": 0.4, "replay": replay},
        )
        tensors = {"train": tmp_path / "both.safetensors", "validation": tmp_path / "old-validation.safetensors"}
        result = run_job(job.model_copy(update={"tensors": tensors, "start": start}))
        value[replay] = result.epochs[-1]["val_accuracy"]
    assert value[0.0] < 0.6
    assert value[0.5] > 0.9


@pytest.mark.wide
def test_pseudo_labels_help_where_labels_are_few(make_job, tmp_path):
    """Two long clouds and 24 labels: what the teacher is sure of shows the student how the clouds lie."""
    rng = np.random.default_rng(0)

    def clouds(count):
        target = np.arange(count) % 2
        numeric = rng.normal(size=(count, 3)) * [1, 4, 4]
        numeric[:, 0] += np.where(target, 2, -2)
        categorical = np.ones((count, 1), np.int32)
        return {"numeric": numeric.astype(np.float32), "categorical": categorical, "target": target.astype(np.int64)}

    sides = {"train": clouds(24), "validation": clouds(500), "unlabelled": clouds(500)}
    del sides["unlabelled"]["target"]
    for side, tensors in sides.items():
        save_file(tensors, tmp_path / f"{side}.safetensors")
    arguments = {"hidden": 16, "dropout": 0.0, "norm": "none", "layers": 1}
    asked = {"arguments": arguments, "epochs": 10, "batch": 16, "lr": 0.02, "job": {"checkpoints": False}}
    value = {}
    for name, labels in (("teacher", None), ("student", {"confidence": 0.8, "rounds": 3})):
        job = make_job(folder=name, pseudo_labels=labels, **asked)
        job = job.model_copy(update={"tensors": {side: tmp_path / f"{side}.safetensors" for side in sides}})
        value[name] = run_job(job).epochs[-1]["val_accuracy"]
    assert value["student"] > value["teacher"] + 0.03


TREES = {"rounds": 60, "learning_rate": 0.3, "min_data_in_leaf": 5}


def refitted(make_job, folder="job", **more):
    return make_job("table", "binary", "trees", TREES, epochs=8, folder=folder, refit=True, **more)


def test_a_refit_learns_from_both_sides_and_keeps_the_figures_of_validation(make_job):
    job, heard = refitted(make_job), []
    result = run_job(job, lambda epoch: heard.append(epoch) or True)
    first = run_job(make_job("table", "binary", "trees", TREES, epochs=8, folder="first"))
    assert (result.value, result.log_loss, result.best_epoch) == (first.value, first.log_loss, first.best_epoch)
    sides = [load_file(job.tensors[side]) for side in ("train", "validation")]
    inputs = np.concatenate([np.hstack([side["numeric"], side["categorical"]]) for side in sides])
    data = lightgbm.Dataset(inputs, np.concatenate([side["target"] for side in sides]), categorical_feature=[3])
    rounds = result.environment["rounds"]
    peer = lightgbm.train({**result.environment["parameters"], "num_threads": 1}, data, rounds)
    ours = lightgbm.Booster(model_str=(job.folder / TREES_FILE).read_text())
    np.testing.assert_allclose(ours.predict(inputs), peer.predict(inputs), atol=1e-9)
    assert rounds < 60, "validation chose fewer than the spec allows"
    assert result.environment["refit"] == {"examples": len(inputs), "rounds": rounds}
    again = [epoch for epoch in heard if epoch.stage == "refit"]
    assert [list(epoch.values) for epoch in again] == [["refit_train_loss"]] * len(again) != []
    assert run_job(job) == result


def test_a_refit_weighs_the_rows_of_both_sides(make_job):
    """Rows of weight 0, whose labels are turned round, teach nothing, on either side."""
    job, tensors, sides = refitted(make_job, "weighted"), {}, []
    for split, path in job.tensors.items():
        held = load_file(path)
        is_wrong = np.arange(len(held["target"])) % 3 == 0
        target = np.where(is_wrong, 1 - held["target"], held["target"])
        weight = np.where(is_wrong, 0.0, np.linspace(0.5, 2.0, len(target))).astype(np.float32)
        tensors[split] = path.with_name(f"weighted-{split}.safetensors")
        save_file({**held, "target": target, "weight": weight}, tensors[split])
        sides.append((np.hstack([held["numeric"], held["categorical"]]), target, weight))
    result = run_job(job.model_copy(update={"tensors": tensors}))
    inputs, target, weight = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    data = lightgbm.Dataset(inputs, target, weight=weight, categorical_feature=[3])
    settings = {**result.environment["parameters"], "num_threads": 1}
    peer = lightgbm.train(settings, data, result.environment["refit"]["rounds"])
    ours = lightgbm.Booster(model_str=(job.folder / TREES_FILE).read_text()).predict(inputs)
    np.testing.assert_allclose(ours, peer.predict(inputs), atol=1e-9)
    truth = np.where(weight == 0, 1 - target, target)
    assert ((ours > 0.5) == truth).mean() > 0.9


def test_a_refit_of_trees_of_series_learns_from_the_windows_of_both_sides(make_job):
    arguments = {"rounds": 20, "min_data_in_leaf": 5}
    job = make_job("series", "regression", "trees", arguments, epochs=4, refit=True)
    reference = WindowReference(kind="seasonal", column=0, back=[2], floor=0.1, is_scaled=True)
    # What the trees correct: the forecast of the season before, with a unit of its own for each window.
    Preparation.load(job.prepared).model_copy(update={"reference": reference}).save(job.prepared)
    joined = load_file(job.tensors["train"])
    later = load_file(job.tensors["validation"])
    later["end"] = later["end"] + len(joined["series"])
    joined = {name: np.concatenate([values, later[name]]) for name, values in joined.items()}
    shared = {**later, "series": joined["series"]}
    tensors = {"train": job.tensors["train"], "validation": job.tensors["validation"].with_name("later.safetensors")}
    save_file({**load_file(tensors["train"]), "series": joined["series"]}, tensors["train"])
    save_file(shared, tensors["validation"])
    job = job.model_copy(update={"tensors": tensors})
    first = run_job(job.validated)
    result = run_job(job)
    assert (result.value, result.best_epoch) == (first.value, first.best_epoch)
    used = result.environment["refit"]
    assert used == {"examples": 250, "rounds": result.environment["rounds"]}
    whole = tensors["train"].with_name("joined.safetensors")
    save_file(joined, whole)
    peer_job = make_job("series", "regression", "trees", arguments | {"rounds": used["rounds"]}, folder="peer")
    examples, _ = open_examples(
        peer_job.model_copy(update={"tensors": {**tensors, "train": whole}}), Preparation.load(job.prepared)
    )
    inputs = tree_inputs(examples, Preparation.load(job.prepared))
    label, slope = inputs.label(joined["target"])[:, 0], inputs.slope[:, 0]
    assert np.ptp(slope) > 0
    ours = lightgbm.Booster(model_str=(job.folder / TREES_FILE).read_text()).predict(inputs.features)
    before = lightgbm.Booster(model_str=(job.validated.folder / TREES_FILE).read_text()).predict(inputs.features)
    seen = slice(200, None)
    error, error_before = (np.abs((each - label) * slope)[seen].mean() for each in (ours, before))
    assert error < 0.9 * error_before, "the refit has learnt from the validation windows"


def test_only_the_chosen_model_is_fitted_again(make_job):
    job = refitted(make_job)
    assert job.is_refitted
    assert not job.validated.is_refitted
    assert not job.model_copy(update={"fold": (0, 3)}).is_refitted
    assert not job.model_copy(update={"stage": "teacher-1"}).is_refitted


@pytest.mark.parametrize(("stage", "epoch"), [("train", 4), ("refit", 3)])
def test_killed_in_either_fit_gives_the_same_bits(make_job, stage, epoch):
    def report(now):
        if (now.stage, now.epoch) == (stage, epoch):
            raise Killed
        return True

    job, sampled = refitted(make_job, "killed"), {"feature_fraction": 0.5}
    arguments = job.model.model_copy(update={"arguments": TREES | sampled})
    job, whole = job.model_copy(update={"model": arguments}), refitted(make_job, "whole")
    with pytest.raises(Killed):
        run_job(job, report)
    expected = run_job(whole.model_copy(update={"model": arguments}))
    result = run_job(job)
    assert result.weights_sha256 == expected.weights_sha256
    assert result.resumed_from
    assert (job.validated.folder / TREES_FILE).read_text() == (whole.validated.folder / TREES_FILE).read_text()


def test_a_net_has_no_refit(make_job):
    job = make_job(arguments={"hidden": 8}, epochs=1, refit=True)
    plain = make_job(arguments={"hidden": 8}, epochs=1, folder="plain")
    assert job.validated is job
    assert run_job(job).weights_sha256 == run_job(plain).weights_sha256
