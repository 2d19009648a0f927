"""The default course of a net counts steps: for small and large data, and beside what a spec sets."""

from typing import Any

import pytest

from models.nets.catalogue import CATALOGUE, row_of
from models.project_spec.blocks import Spec
from models.training.families import search_space
from models.training.optimisation.course import FEWEST_PICTURE_STEPS, STEPS, course, still_rises

PICTURES = {"source": "x", "target": "y", "kind": "image", "image": {"column": "p", "height": 32, "width": 28}}


RESNET = {"model.net": "resnet"}
COUNT_STEPS = ["cnn", "resnet", "gru", "lstm", "decoder", "./net.py:Net"]


def spec_of(data: dict[str, Any] = PICTURES, **blocks: Any) -> Spec:
    return Spec.model_validate({"name": "test", "data": data, **blocks})


@pytest.mark.parametrize(
    ("num_train", "steps"), [(50, 400), (700, 400), (1_500, 450), (7_000, 2_100), (60_000, 3_000), (10**6, 15_625)]
)
def test_pictures_are_learnt_in_so_many_steps_whatever_their_number(num_train: int, steps: int) -> None:
    settings = course(spec_of(), "resnet", num_train)
    assert settings["train.batch"] == 64
    assert settings["train.epochs"] * max(1.0, num_train / 64) == pytest.approx(steps, rel=0.12)
    assert steps >= FEWEST_PICTURE_STEPS
    assert steps <= STEPS or settings["train.epochs"] == 1


def test_the_recipe_shifts_by_a_tenth_and_flips_where_that_keeps_the_label() -> None:
    settings = search_space(spec_of(), num_train=700).flipped().settings(RESNET)
    assert settings["train.augment"] == {"shift_pixels": 3, "flip": True}
    assert settings["train.schedule"] == "one_cycle"
    assert (settings["train.lr"], settings["train.weight_decay"]) == (0.01, 0.05)
    assert course(spec_of(), "resnet", 700)["train.augment"] == {"shift_pixels": 3}
    assert not search_space(spec_of(train={"augment": {"erase": 0.1}}), num_train=700).augments


def test_what_the_spec_sets_keeps_its_meaning() -> None:
    train = {"epochs": 3, "schedule": "cosine", "batch": 128, "augment": {"erase": 0.1}, "patience": 2, "lr": 0.1}
    settings = search_space(spec_of(train=train), num_train=700).settings(RESNET)
    assert not {f"train.{name}" for name in train} & settings.keys()
    assert search_space(spec_of(train={"batch": 128}), num_train=6_400).settings(RESNET)["train.epochs"] == 38


@pytest.mark.parametrize("net", ["gru", "./net.py:Net"])
def test_a_named_net_counts_steps_once_the_rows_are_known(net: str) -> None:
    data = {"source": "x", "target": "y", "kind": "series", "window": {"length": 8}}
    spec = spec_of({**data, "split": {"by": "time", "column": "day"}}, model={"net": net})
    assert search_space(spec).settings({"train.lr": 0.1}) == {"train.lr": 0.1}
    small, large = (search_space(spec, num_train=rows).settings({}) for rows in (900, 10**5))
    assert (small["train.epochs"], large["train.epochs"]) == (60, 8)
    assert "model.hidden" not in small, "a named net keeps its arguments"
    space = search_space(spec, num_train=900)
    assert space.within(0.0, {net: 100.0}).settings({})["train.epochs"] == 6, "600 s of work at most"
    assert space.within(0.0, {net: 100.0}).settings({})["train.patience"] == 3
    assert space.has_whole_trials


def test_the_ready_nets_of_tables_keep_their_epochs_where_they_are_named() -> None:
    assert [net for net in (*CATALOGUE, "./net.py:Net") if row_of(net).counts_steps] == COUNT_STEPS
    named = search_space(spec_of({"source": "x", "target": "y"}, model={"net": "mlp"}), num_train=900)
    assert named.settings({}) == {}
    assert course(spec_of(), "trees", 700) == {}


@pytest.mark.parametrize(
    ("values", "direction", "rises"),
    [
        ([0.1, 0.3, 0.4, 0.45, 0.5], "maximize", True),
        ([0.1, 0.3, 0.5, 0.5, 0.5], "maximize", False),
        ([0.1, 0.5, 0.5, 0.4, 0.501], "maximize", False),
        ([3.0, 2.0, 1.5, 1.2, 1.0], "minimize", True),
        ([0.1, 0.3, 0.5], "maximize", False),
        ([0.1, 0.3, float("nan"), 0.4, 0.9], "maximize", False),
        ([0.5] * 5, "maximize", False),
    ],
)
def test_a_curve_still_rises_if_its_last_fifth_brought_much(values: list[float], direction: str, rises: bool) -> None:
    assert still_rises(values, direction) == rises
