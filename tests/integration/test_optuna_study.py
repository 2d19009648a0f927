"""Optuna by ask and tell: what is drawn does not depend on whether the search was killed on the way."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from models.errors import LeaseLostError, UsageError
from models.project_spec.blocks import Spec
from models.project_spec.search import Dimension, Search
from models.training.families import search_space
from models.training.search_course import next_family
from models.training.search_space import suggest
from tasks.host.workspace import Workspace
from tasks.tools import optuna_study
from tasks.tools.optuna_study import (
    FEWEST,
    KILLED,
    REASON,
    RunningTrial,
    ask,
    fail_open_trials,
    fail_running,
    importances,
    killed_before,
    open_study,
    reaching_studies,
    storage,
    tell,
    trials_of,
)

RANGES = {
    "train.lr": Dimension(low=1e-4, high=1e-1, log=True),
    "model.dropout": Dimension(low=0.0, high=0.5),
}
GRID = {"model.hidden": Dimension(choices=[8, 16, 32]), "model.layers": Dimension(low=1, high=3, integer=True)}
TRIALS = 13

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _experimental() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def study_of(workspace: Workspace, sampler: str, name: str = "s") -> tuple[optuna.Study, Search]:
    search = Search.model_validate({"sampler": sampler, "trials": TRIALS})
    return open_study(workspace, name, search, "maximize", {"loopline.loop_id": "tiny-1"}), search


def objective(params: dict[str, Any]) -> float:
    return -sum((float(value) - 0.01) ** 2 for value in params.values())


def draw(study: optuna.Study, search: Search, space: dict[str, Dimension]) -> tuple[optuna.Trial, dict[str, Any]]:
    trial = ask(study, search, space, 7, len(trials_of(study)))
    return trial, suggest(trial, space)


def carry_on(study: optuna.Study, search: Search, space: dict[str, Dimension], count: int) -> None:
    for _ in range(count):
        trial, params = draw(study, search, space)
        study.tell(trial, objective(params))


def drawn(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in trials_of(study)]


SAMPLERS = [
    pytest.param("tpe", RANGES, id="tpe"),
    pytest.param("random", RANGES, id="random"),
    pytest.param("nsga2", RANGES, id="nsga2"),
    pytest.param("grid", GRID, id="grid"),
]


def count_of(sampler: str) -> int:
    return 9 if sampler == "grid" else TRIALS


@pytest.mark.parametrize(("sampler", "space"), [*SAMPLERS, pytest.param("cmaes", RANGES, id="cmaes")])
def test_a_resumed_search_draws_what_it_would_have_drawn(
    workspace: Workspace, sampler: str, space: dict[str, Dimension]
) -> None:
    count = count_of(sampler)
    whole, search = study_of(workspace, sampler, "whole")
    carry_on(whole, search, space, count)
    for part in (4, 3, count - 7):
        study, search = study_of(workspace, sampler, "parts")
        carry_on(study, search, space, part)
    assert drawn(study) == drawn(whole)


@pytest.mark.parametrize(("sampler", "space"), [*SAMPLERS, pytest.param("cmaes", RANGES, id="cmaes")])
def test_a_killed_owners_trial_is_drawn_again_and_not_counted(
    workspace: Workspace, sampler: str, space: dict[str, Dimension]
) -> None:
    count = count_of(sampler)
    whole, search = study_of(workspace, sampler, "whole")
    carry_on(whole, search, space, count)
    study, search = study_of(workspace, sampler, "killed")
    carry_on(study, search, space, 5)
    _, lost = draw(study, search, space)  # the owner is killed here
    study, search = study_of(workspace, sampler, "killed")
    assert len(trials_of(study)) == 5
    assert study.get_trials(states=(optuna.trial.TrialState.RUNNING,)) == []
    carry_on(study, search, space, count - 5)
    assert lost in drawn(study)
    assert drawn(study) == drawn(whole)


def test_what_a_killed_trial_had_reported_is_known_to_the_one_drawn_again(workspace: Workspace) -> None:
    study, search = study_of(workspace, "tpe")
    trial, params = draw(study, search, RANGES)
    trial.report(0.5, 1)
    trial.report(0.6, 2)
    study, search = study_of(workspace, "tpe")
    again, same = draw(study, search, RANGES)
    assert same == params
    assert killed_before(study, same) == {1: 0.5, 2: 0.6}
    study.tell(again, 0.7)
    _, other = draw(study, search, RANGES)
    assert killed_before(study, other) == {}


def test_hyperband_deals_the_same_bracket_to_a_trial_drawn_again(workspace: Workspace) -> None:
    search = Search.model_validate({"sampler": "random", "pruner": "hyperband", "trials": TRIALS})

    def brackets(killed_at: int | None) -> list[int]:
        study = open_study(workspace, "h", search, "maximize", {})
        for position in range(TRIALS):
            trial = ask(study, search, RANGES, 7, position)
            suggest(trial, RANGES)
            if position == killed_at:
                fail_running(workspace, study, trial.number)
                trial = ask(study, search, RANGES, 7, position)
                suggest(trial, RANGES)
            for step in range(1, 10):
                trial.report(0.1 * step, step)
                trial.should_prune()
            study.tell(trial, 1.0)
        pruner = study.pruner
        found = [
            pruner._get_bracket_id(study, one) for one in study.get_trials() if one.user_attrs.get(REASON) != KILLED
        ]
        optuna.delete_study(study_name="h", storage=storage(workspace))
        return found

    whole = brackets(None)
    assert len(set(whole)) > 1
    assert brackets(killed_at=2) == whole


def test_a_grid_is_covered_once(workspace: Workspace) -> None:
    study, search = study_of(workspace, "grid")
    carry_on(study, search, GRID, 9)
    assert len({tuple(params.values()) for params in drawn(study)}) == 9


def test_a_search_with_another_seed_draws_otherwise(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    one = suggest(ask(study, search, RANGES, 1, 0), RANGES)
    other = suggest(ask(study, search, RANGES, 2, 0), RANGES)
    assert one != other


def test_finished_trials_carry_all_that_is_told(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    states = optuna.trial.TrialState
    trial, params = draw(study, search, RANGES)
    trial.report(0.1, 1)
    trial.report(0.2, 2)
    trial.set_user_attr(optuna_study.SECONDS, 1.5)
    study.tell(trial, 0.2)
    trial, _ = draw(study, search, RANGES)
    trial.report(0.05, 1)
    study.tell(trial, state=states.PRUNED)
    trial, _ = draw(study, search, RANGES)
    trial.set_user_attr(REASON, "NaN in the loss")
    study.tell(trial, state=states.FAIL)
    complete, pruned, failed = trials_of(study_of(workspace, "random")[0])
    assert (complete.state, complete.params, complete.value, complete.epochs) == ("complete", params, 0.2, [0.1, 0.2])
    assert complete.seconds == 1.5
    assert (pruned.state, pruned.epochs) == ("pruned", [0.05])
    assert (failed.state, failed.value, failed.reason) == ("failed", None, "NaN in the loss")


def test_a_trial_ends_when_the_budget_of_the_search_is_spent(workspace: Workspace) -> None:
    study, search = study_of(workspace, "tpe")
    trial = ask(study, search, RANGES, 7, 0)
    running = RunningTrial(trial, {}, 0, "run", workspace.root, {}, is_pruned=False, limit_s=3.0)
    assert [running.should_prune(work) for work in (0.0, 3.0, 3.1)] == [False, False, True]


def test_failing_a_running_trial_marks_it_as_killed(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    trial, _ = draw(study, search, RANGES)
    fail_running(workspace, study, trial.number)
    (told,) = study.trials
    assert (told.state.name, told.user_attrs[REASON]) == ("FAIL", KILLED)
    assert trials_of(study) == []


def test_an_owner_that_was_paused_fails_no_trial_of_the_one_that_took_over(workspace: Workspace) -> None:
    """The other draws its trial in the moment in which this one has been told that it has the loop."""
    study, search = study_of(workspace, "random")
    left, _ = draw(study, search, RANGES)
    drawn_later: list[optuna.Trial] = []

    def taken_over_after() -> None:
        drawn_later.append(draw(study_of(workspace, "random")[0], search, RANGES)[0])

    assert fail_open_trials(workspace, "s", taken_over_after) == [left.number]
    open_study(workspace, "s", search, "maximize", {}, taken_over_after)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL", "RUNNING"]
    assert study.tell(drawn_later[-1], 1.0).value == 1.0


def test_an_owner_without_its_loop_fails_no_trial_and_says_who_has_it(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    trial, _ = draw(study, search, RANGES)

    def confirm() -> None:
        raise LeaseLostError("another machine has taken it over")

    for act in (
        lambda: fail_open_trials(workspace, "s", confirm),
        lambda: open_study(workspace, "s", search, "maximize", {}, confirm),
    ):
        with pytest.raises(LeaseLostError):
            act()
    assert [trial.state.name for trial in study.trials] == ["RUNNING"]
    study_of(workspace, "random")
    with pytest.raises(LeaseLostError, match="taken it over"), reaching_studies(confirm):
        trial.report(0.5, 1)
    tell(study, trial, 0.5, "COMPLETE")
    assert [trial.state.name for trial in study.trials] == ["FAIL"]


def test_cmaes_over_choices_is_refused_with_the_cure(workspace: Workspace) -> None:
    study, search = study_of(workspace, "cmaes")
    with pytest.raises(UsageError, match="give ranges, or use tpe"):
        ask(study, search, GRID, 0, 0)


def test_a_grid_over_a_range_without_a_step_is_refused(workspace: Workspace) -> None:
    study, search = study_of(workspace, "grid")
    with pytest.raises(UsageError, match="expected `choices`, or a `step`, for a grid"):
        ask(study, search, RANGES, 0, 0)


@pytest.mark.parametrize("pruner", ["median", "hyperband", "halving", "none"])
def test_every_pruner_is_optunas(workspace: Workspace, pruner: str) -> None:
    search = Search.model_validate({"pruner": pruner, "sampler": "random"})
    study = open_study(workspace, pruner, search, "minimize", {})
    trial = ask(study, search, RANGES, 0, 0)
    trial.report(1.0, 1)
    assert trial.should_prune() in (True, False)


def test_importances_need_twenty_trials(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    carry_on(study, search, RANGES, FEWEST - 1)
    assert importances(study) == {}
    carry_on(study, search, RANGES, FEWEST)
    found = importances(study)
    assert set(found) == set(RANGES)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-6)


def test_a_study_remembers_whose_it_is(workspace: Workspace) -> None:
    study_of(workspace, "random")
    study, _ = study_of(workspace, "random")
    assert study.user_attrs["loopline.loop_id"] == "tiny-1"


def test_a_journal_cut_in_its_last_line_can_be_gone_on_with(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    carry_on(study, search, RANGES, 4)
    journal = workspace.state / "optuna" / "journal.log"
    journal.write_bytes(journal.read_bytes()[:-15])
    study, search = study_of(workspace, "random")
    carry_on(study, search, RANGES, 1)
    assert len(trials_of(study_of(workspace, "random")[0])) >= 4


def test_an_open_study_goes_on_after_another_writer_was_killed(workspace: Workspace) -> None:
    study, search = study_of(workspace, "random")
    carry_on(study, search, RANGES, 2)
    with (workspace.state / "optuna" / "journal.log").open("ab") as journal:
        journal.write(b'{"op_code":5,"work')
    carry_on(study, search, RANGES, 2)
    assert len(trials_of(study_of(workspace, "random")[0])) == 4


def test_a_gp_search_draws_the_same_after_a_resume(workspace: Workspace) -> None:
    whole, search = study_of(workspace, "gp", "whole")
    carry_on(whole, search, RANGES, 12)
    for part in (11, 1):
        study, search = study_of(workspace, "gp", "parts")
        carry_on(study, search, RANGES, part)
    assert drawn(study) == drawn(whole)


def _ask_family(study: optuna.Study, search: Search) -> tuple[optuna.Trial, dict[str, Any]]:
    """Ask for the next trial of a search over families, as the step does."""
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y"}})
    space = search_space(spec)
    trials = trials_of(study)
    families = list(space.families)
    turn = len(trials) - len(families)
    fixed = (
        space.first(families[len(trials)])
        if turn < 0
        else {"model.net": next_family(families, trials, "maximize", turn)}
    )
    trial = ask(study, search, space.dimensions, 7, len(trials), fixed)
    return trial, space.suggest(trial)


def test_a_search_over_families_draws_each_in_its_own_space_and_the_same_after_a_kill(workspace: Workspace) -> None:
    drawn_by: dict[str, list[dict[str, Any]]] = {}
    for name in ("whole", "killed"):
        for number in range(TRIALS):
            study, search = study_of(workspace, "tpe", name)
            trial, params = _ask_family(study, search)
            if name == "killed" and number in (1, 8):
                study, search = study_of(workspace, "tpe", name)  # the owner was killed: the trial is asked for again
                trial, again = _ask_family(study, search)
                assert again == params
            study.tell(trial, params.get("model.num_leaves", 0) - len(params))
        drawn_by[name] = drawn(study)
    assert drawn_by["whole"] == drawn_by["killed"]
    nets = [params["model.net"] for params in drawn_by["whole"]]
    assert nets[:3] == ["trees", "linear", "mlp"]
    assert nets[3::2] == ["trees"] * len(nets[3::2])
    assert all(("model.l2" in params) == (params["model.net"] == "linear") for params in drawn_by["whole"])
    leaves = [params["model.num_leaves"] for params in drawn_by["whole"] if params["model.net"] == "trees"]
    assert len({*leaves}) > 3


def test_families_have_dimensions_of_the_same_path_and_other_choices(workspace: Workspace) -> None:
    """`model.hidden` of tabm has other choices than that of mlp, which Optuna refuses under one name."""
    spec = Spec.model_validate(
        {"name": "t", "data": {"source": "x", "target": "y"}, "search": {"families": ["mlp", "tabm", "trees"]}}
    )
    space, (study, search) = search_space(spec), study_of(workspace, "tpe")
    for position, net in enumerate(("mlp", "tabm", "trees", "tabm", "mlp")):
        fixed = space.first(net) if position < 3 else {"model.net": net}
        trial = ask(study, search, space.dimensions, 7, position, fixed)
        settings = space.settings(space.suggest(trial))
        assert settings == {**space.settings(trial.params), "model.net": net}
        assert space.families[net].dimensions.keys() <= settings.keys()
        study.tell(trial, 0.5)
    assert space.settings(space.first("tabm"))["model.hidden"] == 128
    assert {*drawn(study)[1]} - {"model.net"} == {*drawn(study)[3]} - {"model.net"}


def test_a_study_has_the_name_of_its_inputs_and_a_second_one_of_a_loop_has_runs_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "1111111122222222", tmp_path / "3333333344444444"
    one.mkdir()
    two.mkdir()
    first = optuna_study.name_study(one, "tiny", "tiny-1-aaaa")
    assert first == ("tiny-1111111122222222", "")
    assert optuna_study.name_study(one, "tiny", "tiny-1-aaaa") == first, "after a kill"
    assert optuna_study.name_study(one, "tiny", "tiny-2-bbbb") == first, "a later loop"
    assert optuna_study.name_study(two, "tiny", "tiny-2-bbbb") == ("tiny-3333333344444444", "-33333333")
