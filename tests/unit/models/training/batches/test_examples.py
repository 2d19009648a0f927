import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from models.data.preparation import Preparation
from models.errors import DataError, TrainingError
from models.training.batches.examples import open_examples
from models.training.batches.selection import learnt_rows
from models.training.job import RefitSettings


def opened(job):
    return open_examples(job, Preparation.load(job.prepared))


@pytest.mark.parametrize("stride", [8, 3])
def test_folds_of_a_text_are_stretches_that_no_training_window_reaches_into(make_job, stride):
    job = make_job("text", "language", count=40, job={"fold": (1, 4)})
    tokens = load_file(job.tensors["train"])["tokens"]
    save_file({"tokens": tokens, "start": torch.arange(0, 40 * 8, stride)}, job.tensors["train"])
    train, validation = opened(job)
    held = validation.target[validation.keep]
    low, high = int(held[0]), int(held[-1]) + 8
    kept = train.target[train.keep]
    assert ((kept + 8 <= low) | (kept >= high)).all()
    if stride == 8:
        assert len(kept) + len(held) == 40 + 50


def test_folds_part_the_examples_and_meet_again(make_job):
    held = []
    for index in range(3):
        train, validation = opened(make_job("table", job={"fold": (index, 3)}))
        assert len(train) + len(validation) == 250
        assert not set(train.keep.tolist()) & set(validation.keep.tolist())
        held += validation.keep.tolist()
    assert sorted(held) == list(range(250))
    with pytest.raises(TrainingError, match="fold 3 of 3"):
        opened(make_job("table", job={"fold": (3, 3)}))


@pytest.mark.parametrize("index", range(5))
def test_folds_of_a_series_are_trained_on_what_lies_before_them(make_job, index):
    train, validation = opened(make_job("series", "regression", job={"fold": (index, 5)}))
    first, last = validation.keep[0].item(), validation.keep[-1].item()
    assert train.keep.tolist() == list(range(first))
    assert validation.keep.tolist() == list(range(first, last + 1))
    assert len(validation) == pytest.approx(250 / 6, abs=1)
    assert (last == 249) is (index == 4)


@pytest.mark.parametrize(("stride", "num_shared"), [(1, 3), (3, 1), (4, 0), (7, 0)])
def test_folds_at_several_horizons_share_no_target(make_job, stride, num_shared):
    job = make_job("series", "regression", job={"fold": (0, 5)})
    preparation = Preparation.load(job.prepared)
    assert preparation.window is not None
    several = preparation.window.model_copy(update={"horizon": [1, 4]})
    preparation.model_copy(update={"window": several}).save(job.prepared)

    def with_times(distance):
        times = torch.arange(250) * stride
        for side, own in (("train", times[:200]), ("validation", times[200:])):
            tensors = {**load_file(job.tensors[side]), "key": own.clone(), "first_key": own - distance}
            save_file(tensors, job.tensors[side])

    with_times(3)
    train, validation = opened(job)
    assert train.keep.tolist() == list(range(validation.keep[0].item() - num_shared))
    with_times(98 * stride)
    with pytest.raises(TrainingError, match=r"predicts a step that an example of the fold predicts too"):
        opened(job)


@pytest.mark.parametrize("index", range(3))
def test_folds_of_many_series_are_trained_on_what_lies_before_them_in_all_series(make_job, index):
    job = make_job("series", "regression", job={"fold": (index, 3), "fold_by": "blocks"})
    key = torch.cat([torch.arange(100), torch.arange(100), torch.arange(100, 125), torch.arange(100, 125)])
    for side, rows in (("train", key[:200]), ("validation", key[200:])):
        save_file({**load_file(job.tensors[side]), "key": rows.contiguous()}, job.tensors[side])
    train, validation = opened(job)
    assert key[train.keep].max() < key[validation.keep].min()
    assert len(validation) == pytest.approx(250 / 4, abs=2)


def test_more_folds_than_times_are_refused(make_job):
    job = make_job("table", job={"fold": (1, 4), "fold_by": "blocks"})
    for side, count in (("train", 200), ("validation", 50)):
        save_file({**load_file(job.tensors[side]), "key": torch.arange(count) // 100}, job.tensors[side])
    with pytest.raises(TrainingError, match=r"search.folds: got 4, but the rows have 2 different times"):
        opened(job)


def test_folds_of_a_split_by_time_are_stretches_of_it_though_the_file_is_in_another_order(make_job):
    job = make_job("table", job={"fold": (1, 4), "fold_by": "blocks"})
    key = torch.arange(250).flip(0)
    for side, rows in (("train", key[:200]), ("validation", key[200:])):
        save_file({**load_file(job.tensors[side]), "key": rows.contiguous()}, job.tensors[side])
    train, validation = opened(job)
    assert sorted(key[validation.keep].tolist()) == list(range(100, 150))
    assert sorted(key[train.keep].tolist()) == list(range(100))


def test_a_sample_is_the_same_every_time(make_job):
    job = make_job("table", job={"sample": 0.25})
    assert len(opened(job)[0]) == 50
    assert torch.equal(opened(job)[0].keep, opened(job)[0].keep)


@pytest.mark.parametrize("part", [64, 1 << 20])
def test_a_model_learns_from_so_many_rows_and_its_refit_from_the_same(make_job, monkeypatch, part):
    monkeypatch.setattr("models.scratch.PART", part)
    job = make_job("table", rows=90)
    whole = load_file(job.tensors["train"])["numeric"]
    train, validation = opened(job)
    assert (len(train), len(validation)) == (90, 50)
    rows = train.tensors["numeric"]
    places = [int((whole == row).all(dim=1).nonzero()[0, 0]) for row in rows]
    assert places == sorted({*places})
    again = opened(job.model_copy(update={"refit": RefitSettings()}))[0].tensors["numeric"]
    assert torch.equal(again, torch.cat([rows, validation.tensors["numeric"]]))
    assert len(opened(job.model_copy(update={"sample": 0.5}))[0]) == 45
    train, validation = opened(job.model_copy(update={"fold": (0, 2)}))
    assert len(train) + len(validation) == 140
    assert len(opened(make_job("table", rows=200))[0]) == 200


def test_the_groups_of_a_ranking_are_sampled_whole():
    groups = torch.arange(60) // 6
    rows = learnt_rows(30, 0, torch.zeros(60), "ranking", groups)
    assert rows is not None
    assert torch.bincount(groups[rows]).unique().tolist() == [0, 6]
    assert len(rows) == 30


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_of_rows_has_every_class(seed):
    target = torch.zeros(1000, dtype=torch.int64)
    target[[7, 500]], target[999] = 2, 3
    rows, some = (learnt_rows(10, seed, target, task) for task in ("multiclass", "regression"))
    assert rows is not None
    assert some is not None
    assert rows.tolist() == sorted({*rows.tolist()})
    assert torch.bincount(target[rows], minlength=4)[2:].tolist() == [1, 1]
    assert {*some.tolist()} <= {*rows.tolist()}
    assert len(rows) == 12


def test_a_trials_share_of_the_rows_has_every_class(make_job):
    job = make_job("table", rows=90)
    tensors = load_file(job.tensors["train"])
    tensors["target"] = torch.zeros_like(tensors["target"])
    tensors["target"][11] = 1
    save_file(tensors, job.tensors["train"])
    shares = [opened(job.model_copy(update={"sample": share}))[0].targets() for share in (0.1, 0.3, 0.6)]
    assert all(target.sum() == 1 for target in shares)


def test_a_broken_file_says_which(make_job):
    job = make_job("table")
    job.tensors["train"].write_bytes(job.tensors["train"].read_bytes()[:100])
    with pytest.raises(DataError, match=r"train.safetensors: cannot be read"):
        opened(job)


WHOLE = np.arange(-10, 40, dtype=np.float64)


@pytest.mark.parametrize("job", [{}, {"fold": (1, 4)}])
@pytest.mark.parametrize("memory_mb", [1, 1024])
def test_metrics_see_targets_exactly_as_they_were_given(make_job, job, memory_mb):
    made = make_job("table", "regression", job=job, memory_mb=memory_mb)
    for side in ("train", "validation"):
        tensors = load_file(made.tensors[side])
        count = len(tensors["target"])
        tensors["value"] = torch.from_numpy(np.resize(WHOLE, count))
        tensors["target"] = ((tensors["value"] - 14.7) / 13.3).float()
        padding = torch.zeros(count, 6_000 if memory_mb == 1 else 1)
        save_file({**tensors, "numeric": padding}, made.tensors[side])
    _, validation = opened(made)
    assert (validation.stream is not None) == (memory_mb == 1 and not job)
    assert validation.values().dtype == np.float64
    assert set(validation.values()) == set(WHOLE)
    assert np.allclose(validation.values(), validation.targets().double().numpy() * 13.3 + 14.7, atol=1e-4)


def test_metrics_see_classes_as_indices(make_job):
    _, validation = opened(make_job("table"))
    assert validation.values().dtype == np.int64
    assert validation.values().tolist() == validation.targets().tolist()
