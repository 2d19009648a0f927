"""The search without its engine: what is owed, which trial is best, what a set of values means."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import TrainingError, UsageError
from models.project_spec.blocks import Model, Train
from models.project_spec.search import Dimension, Search
from models.training.job import TrainingResult
from models.training.search_space import (
    Trial,
    best_of,
    check_space,
    grid,
    grid_point,
    mean_score,
    mean_value,
    suggest,
    trials_owed,
    with_params,
)


def trial(number: int, value: float | None = None, state: str = "complete", reason: str = "") -> Trial:
    return Trial.model_validate({"number": number, "state": state, "params": {}, "value": value, "reason": reason})


@given(wanted=st.integers(0, 50), ran=st.integers(0, 60))
def test_what_is_owed_is_never_negative_and_never_repeated(wanted: int, ran: int) -> None:
    owed = trials_owed(Search(trials=wanted), {}, [trial(number) for number in range(ran)])
    assert owed == max(0, wanted - ran)


def test_a_failed_trial_is_not_owed_again() -> None:
    assert trials_owed(Search(trials=3), {}, [trial(0, 1.0), trial(1, state="failed")]) == 1


def test_best_by_direction() -> None:
    trials = [trial(0, 0.5), trial(1, 0.9), trial(2, 0.1)]
    assert best_of(trials, "maximize").number == 1
    assert best_of(trials, "minimize").number == 2


def test_ties_go_to_the_earlier() -> None:
    assert best_of([trial(2, 0.5), trial(0, 0.5), trial(1, 0.5)], "maximize").number == 0


def test_a_pruned_trial_wins_only_if_none_is_complete() -> None:
    pruned = trial(0, 0.9, "pruned")
    assert best_of([pruned, trial(1, 0.1)], "maximize").number == 1
    assert best_of([pruned, trial(1, state="failed")], "maximize").number == 0


def test_zero_and_negative_values_are_values() -> None:
    assert best_of([trial(0, -1.0), trial(1, 0.0), trial(2, -2.0)], "maximize").number == 1
    assert best_of([trial(0, -1.0), trial(1, 0.0)], "minimize").number == 0


def test_if_all_fail_the_commonest_cause_is_told() -> None:
    trials = [trial(n, state="failed", reason="NaN in the loss" if n else "a rank died") for n in range(4)]
    with pytest.raises(TrainingError, match=r"all 4 trials failed, 3 of them so \(NaN in the loss\)"):
        best_of(trials, "maximize")
    with pytest.raises(TrainingError, match="no trial ran"):
        best_of([], "maximize")


def test_a_space_over_an_unknown_key_names_the_nearest() -> None:
    check_space({"train.lr": Dimension(choices=[1.0]), "model.anything": Dimension(choices=[1])})
    with pytest.raises(UsageError, match=r"search\.space\.train\.wieght_decay: .*train\.weight_decay"):
        check_space({"train.wieght_decay": Dimension(choices=[1.0])})
    with pytest.raises(UsageError, match="expected one of"):
        check_space({"train.zzz": Dimension(choices=[1.0])})


def test_searched_values_take_their_places() -> None:
    model, train = with_params(
        Model(net="mlp", arguments={"hidden": 8, "layers": 2}), Train(), {"train.lr": 0.5, "model.hidden": 64}
    )
    assert model.arguments == {"hidden": 64, "layers": 2}
    assert (train.lr, train.epochs) == (0.5, Train().epochs)


def test_a_chosen_net_takes_its_place_and_is_no_argument() -> None:
    model, _ = with_params(Model(), Train(), {"model.net": "trees", "model.rounds": 9})
    assert (model.net, model.arguments) == ("trees", {"rounds": 9})


def test_the_given_blocks_stay_as_they_are() -> None:
    model = Model(arguments={"hidden": 8})
    with_params(model, Train(), {"model.hidden": 64})
    assert model.arguments == {"hidden": 8}


@pytest.mark.parametrize("value", [-1.0, "fast", None])
def test_a_value_out_of_range_names_its_key(value: Any) -> None:
    with pytest.raises(UsageError, match=r"train\.lr: got"):
        with_params(Model(), Train(), {"train.lr": value})


def test_a_nested_block_survives_searched_values() -> None:
    train = Train.model_validate({"augment": {"brightness": 0.5}})
    assert with_params(Model(), train, {"train.lr": 0.5})[1].augment.brightness == 0.5


def test_a_grid_is_every_value() -> None:
    space = {
        "train.lr": Dimension(low=0.1, high=0.5, step=0.1),
        "model.layers": Dimension(low=1, high=3, integer=True),
        "model.hidden": Dimension(choices=[8, 16]),
    }
    values = grid(space)
    assert values["train.lr"] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert values["model.layers"] == [1, 2, 3]
    assert all(isinstance(value, int) for value in values["model.layers"])
    assert values["model.hidden"] == [8, 16]


def test_a_grid_over_a_range_without_steps_is_refused() -> None:
    with pytest.raises(UsageError, match=r"train\.lr: got a range, expected `choices`, or a `step`, for a grid"):
        grid({"train.lr": Dimension(low=0.1, high=0.5)})


@given(low=st.integers(-20, 20), width=st.integers(1, 30), step=st.integers(1, 7))
def test_a_grid_of_whole_numbers_stays_inside_and_starts_low(low: int, width: int, step: int) -> None:
    values = grid({"model.x": Dimension(low=low, high=low + width, step=step, integer=True)})["model.x"]
    assert values == list(range(low, low + width + 1, step))


class Draws:
    """Keeps what it was asked for and answers the lowest."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:
        self.asked.append((name, low, high, step, log))
        return low

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        self.asked.append((name, low, high, step, log))
        return low

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.asked.append((name, *choices))
        return choices[0]


def test_a_space_over_what_plays_no_part_is_refused() -> None:
    check_space({"train.patience": Dimension(choices=[1]), "model.rounds": Dimension(choices=[1])}, "trees")
    with pytest.raises(UsageError, match=r"search\.space\.train\.lr: has no effect for trees"):
        check_space({"train.lr": Dimension(choices=[1.0])}, "trees")


def test_suggest_asks_in_the_order_of_the_space() -> None:
    draws = Draws()
    space = {
        "train.lr": Dimension(low=1e-4, high=1.0, log=True),
        "model.layers": Dimension(low=1, high=4, integer=True),
        "model.act": Dimension(choices=["relu", "gelu"]),
        "model.dropout": Dimension(low=0.0, high=0.5, step=0.1),
    }
    assert suggest(draws, space) == {"train.lr": 1e-4, "model.layers": 1, "model.act": "relu", "model.dropout": 0.0}
    assert draws.asked == [
        ("train.lr", 1e-4, 1.0, None, True),
        ("model.layers", 1, 4, 1, False),
        ("model.act", "relu", "gelu"),
        ("model.dropout", 0.0, 0.5, 0.1, False),
    ]


def test_a_grid_visits_each_point_once_in_an_order_of_its_own() -> None:
    space = {"train.lr": Dimension(choices=[0.1, 0.2, 0.3]), "model.hidden": Dimension(low=1, high=3, integer=True)}
    points = [grid_point(space, 7, position) for position in range(9)]
    assert len({tuple(point.items()) for point in points}) == 9
    assert points != [grid_point(space, 8, position) for position in range(9)]
    assert trials_owed(Search(trials=50, sampler="grid"), space, []) == 9


def test_a_trial_counts_the_folds_that_have_a_value() -> None:
    results = [TrainingResult(best_epoch=1, value=value, noise=0.1, log_loss=0.5, epochs=[]) for value in (0.6, 0.8)]
    assert mean_value(results) == pytest.approx(0.7)
    assert math.isnan(mean_value([]))
    assert mean_score([]) == {}
    assert mean_score(results)["log_loss"] == 0.5
