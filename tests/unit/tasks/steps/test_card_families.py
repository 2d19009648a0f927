"""The card shows what each family reached on test, where its model is on this machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.project_spec.blocks import Model, Train
from models.training.job import COMPANIONS, TrainingJob, TrainingResult
from tasks.steps import card_families
from tasks.steps.card_families import family_rows, finished_trials, without_other_columns
from tasks.steps.search_choice import keep_families

FAMILIES = [
    {"family": "trees", "trials": 2, "value": 0.91234, "device_seconds": 1.2345, "outcome": "chosen"},
    {"family": "linear", "trials": 1, "value": 0.8, "device_seconds": 0.1, "outcome": "not chosen"},
    {"family": "mlp", "trials": 1, "value": None, "device_seconds": 0.1, "outcome": "failed"},
    {"family": "Net", "trials": 1, "value": 0.7, "device_seconds": 0.1, "outcome": "not chosen"},
]
NAMES = {"trees": "trees", "linear": "linear", "./net.py:Net": "Net"}


def jobs_elsewhere(*nets: str) -> dict[str, TrainingJob]:
    """The jobs of families as a search on another machine left them."""
    return {
        net: TrainingJob(
            folder=Path("/elsewhere", NAMES[net]),
            prepared=Path("/elsewhere"),
            tensors={},
            project=Path("/elsewhere"),
            model=Model(net=net),
            train=Train(),
            metric="accuracy",
            direction="maximize",
        )
        for net in nets
    }


def test_a_family_has_its_figure_on_test_where_its_model_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_families(tmp_path, jobs_elsewhere("trees", "./net.py:Net", "linear"), NAMES)
    for name in ("trees", "Net"):
        (tmp_path / "trials" / name).mkdir(parents=True)

    def read_finished(job: TrainingJob) -> TrainingResult | None:
        return TrainingResult(best_epoch=1, value=0.9, epochs=[]) if job.folder.exists() else None

    def call(reference: str, jobs: dict[str, Any]) -> dict[str, list[float]]:
        assert {job["prepared"] for job in jobs.values()} == {str(tmp_path)}
        assert reference.endswith(":scores_on_test")
        return {name: [0.87654, 0.01234] for name in jobs}

    monkeypatch.setattr(card_families, "read_finished", read_finished)
    monkeypatch.setattr(card_families, "tensors", lambda state, prepared: {"test": tmp_path / "test.safetensors"})
    pool: Any = SimpleNamespace(call=call)
    prepared: Any = SimpleNamespace(folder=tmp_path)
    trials = finished_trials(prepared, tmp_path, tmp_path, tmp_path)
    assert set(trials) == {"trees", "Net"}
    rows = family_rows(FAMILIES, trials, pool)
    assert [row["on test"] for row in rows] == ["0.8765 ± 0.012", None, None, "0.8765 ± 0.012"]
    assert [row["best on validation"] for row in rows] == ["0.9123", "0.8", "none", "0.7"]
    assert all("on test" not in row for row in family_rows(FAMILIES, {}, pool))


def test_a_search_of_one_net_has_no_families(tmp_path: Path) -> None:
    prepared: Any = SimpleNamespace(folder=tmp_path)
    pool: Any = None
    assert finished_trials(prepared, tmp_path, tmp_path, tmp_path) == {}
    assert family_rows([], {}, pool) == []


@pytest.mark.parametrize(("without", "is_step"), [(224.6, True), (280.0, False)])
def test_a_series_says_what_it_reached_without_the_other_columns(without: float, is_step: bool) -> None:
    reached = {"with": 263.7, "without": without, "columns": ["rate"]}
    fact, steps = without_other_columns([{"l2": 1.0}, {COMPANIONS: reached}], "mae", -1)
    assert fact == {"linear model on validation": f"mae {without:g} without the other columns, 263.7 with them"}
    assert [step.endswith("try data.features.drop: [rate].") for step in steps] == [True] * is_step
    assert without_other_columns([{}], "mae", -1) == ({}, [])
