import re
from itertools import product

import pytest

from models.errors import UsageError
from models.project_spec.blocks import Parallel, Train, check_plan
from models.project_spec.parallel_dims import ParallelDims

PLANS = Parallel.__args__


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [4, 8, 12])
def test_every_rank_has_its_own_place_and_every_example_one_speaker(plan, size):
    layout = Train(parallel=plan, ranks=size).parallel_dims(size)
    assert layout.size == size
    places = {tuple(layout.place(rank).values()) for rank in range(size)}
    assert len(places) == size
    assert [layout.data_rank(rank) for rank in layout.output_ranks()] == list(range(layout.data_size))


@pytest.mark.parametrize(
    ("plan", "ranks", "expected"),
    [
        ("ddp", 6, {"replicate": 6}),
        ("fsdp", 6, {"shard": 6}),
        ("hsdp", 2, {"shard": 2}),
        ("hsdp", 4, {"replicate": 2, "shard": 2}),
        ("tp", 4, {"tensor": 4}),
        ("pp", 4, {"pipeline": 4}),
        ("ddp+tp", 4, {"replicate": 2, "tensor": 2}),
        ("fsdp+tp", 8, {"shard": 4, "tensor": 2}),
        ("ddp+pp", 8, {"replicate": 4, "pipeline": 2}),
        ("fsdp+pp", 4, {"shard": 2, "pipeline": 2}),
    ],
)
def test_defaults_of_each_plan(plan, ranks, expected):
    layout = Train(parallel=plan, ranks=ranks).parallel_dims(ranks)
    found = {name: getattr(layout, name) for name in ("pipeline", "replicate", "shard", "tensor")}
    assert {name: count for name, count in found.items() if count > 1} == expected


def test_neighbours_share_layers_and_stages_are_far_apart():
    layout = ParallelDims(pipeline=2, replicate=2, tensor=2, plan="ddp+tp")
    assert [layout.place(rank)["tensor"] for rank in range(4)] == [0, 1, 0, 1]
    assert [layout.place(rank)["pipeline"] for rank in range(8)] == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parallel": "tp", "ranks": 4, "tensor": 2}, "train.tensor: got 2 with 4 ranks, expected 4"),
        ({"parallel": "fsdp+tp", "ranks": 6, "tensor": 4}, "train.tensor: got 4 with 6 ranks, expected one of 2, 3"),
        ({"parallel": "ddp+pp", "ranks": 2}, "train.stages: got 2 with 2 ranks, expected 4 ranks or more"),
        (
            {"parallel": "hsdp", "ranks": 4, "replicas": 3},
            "train.replicas: got 3 with 4 .* expected one of 1, 2, 4",
        ),
        (
            {"parallel": "pp", "ranks": 2, "batch": 8, "microbatches": 9},
            "train.microbatches: got 9, but .* has only 8",
        ),
        ({"parallel": "pp", "ranks": 4, "microbatches": 3}, "train.microbatches: got 3, expected at least 4"),
        ({"parallel": "fsdp", "ranks": 2, "gradient_hook": "fp16"}, "train.gradient_hook: got fp16 with .* fsdp"),
        ({"optimiser": "muon", "ranks": 2, "shard_optimiser": True}, "train.shard_optimiser: got true with muon"),
        ({"parallel": "pp", "ranks": 2, "shard_optimiser": True}, "train.shard_optimiser: got True with .* pp"),
        ({"parallel": "tp", "ranks": 2, "compile": True}, "train.compile: got true with tensor"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(settings, said):
    with pytest.raises(ValueError, match=re.compile(said.removeprefix("train."))):
        Train(**settings)
    with pytest.raises(UsageError, match=re.compile(said)):
        check_plan(Train.model_construct(**{**Train().model_dump(), **settings}), settings["ranks"])


@pytest.mark.parametrize(("kind", "ranks"), list(product(["gpipe", "1f1b"], [2, 4])))
def test_a_pipeline_has_pieces_enough_for_its_stages(kind, ranks):
    large = Train(parallel="pp", pipeline=kind, ranks=ranks).parallel_dims(ranks)
    assert large.microbatches == 2 * ranks
    small = Train(parallel="pp", pipeline=kind, ranks=ranks, batch=ranks).parallel_dims(ranks)
    assert small.microbatches == ranks


def test_one_process_has_no_plan():
    assert Train(parallel="fsdp+tp").parallel_dims(1) == ParallelDims()
