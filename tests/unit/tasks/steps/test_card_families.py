"""The card shows what each family reached on test, where its model is on this machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.files import write_json
from models.project_spec.blocks import Model, Train
from models.training.job import TrainingJob
from tasks.steps import card_families
from tasks.steps.search import FAMILIES_FILE

FAMILIES = [
    {"family": "trees", "trials": 2, "value": 0.91234, "device_seconds": 1.2345, "outcome": "chosen"},
    {"family": "linear", "trials": 1, "value": 0.8, "device_seconds": 0.1, "outcome": "not chosen"},
    {"family": "mlp", "trials": 1, "value": None, "device_seconds": 0.1, "outcome": "failed"},
]


@pytest.mark.parametrize("is_here", [True, False])
def test_a_family_has_its_figure_on_test_where_its_model_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    jobs = {
        name: TrainingJob(
            folder=Path("/elsewhere", name),
            prepared=Path("/elsewhere"),
            tensors={},
            project=Path("/elsewhere"),
            model=Model(net=name),
            train=Train(),
            metric="accuracy",
            direction="maximize",
        ).as_json()
        for name in ("trees", "linear")
    }
    write_json(tmp_path / FAMILIES_FILE, jobs)
    (tmp_path / "trials" / "trees").mkdir(parents=True)

    def read_finished(job: TrainingJob) -> bool | None:
        return True if is_here and job.folder.exists() else None

    def call(reference: str, jobs: dict[str, Any]) -> dict[str, list[float]]:
        assert {job["prepared"] for job in jobs.values()} == {str(tmp_path)}
        assert reference.endswith(":scores_on_test")
        return {name: [0.87654, 0.01234] for name in jobs}

    monkeypatch.setattr(card_families, "read_finished", read_finished)
    monkeypatch.setattr(card_families, "tensors", lambda state, prepared: {"test": tmp_path / "test.safetensors"})
    loop: Any = SimpleNamespace(
        project=SimpleNamespace(folder=tmp_path), state=tmp_path, rank_pool=SimpleNamespace(call=call)
    )
    step = SimpleNamespace(folder=tmp_path, result={"families": FAMILIES})
    inputs: Any = {"prepare": step, "search": step}
    rows = card_families.family_rows(loop, inputs)
    on_test = [row.get("on test", "no column") for row in rows]
    assert on_test == (["0.8765 ± 0.012", None, None] if is_here else ["no column"] * 3)
    assert [row["best on validation"] for row in rows] == ["0.9123", "0.8", "none"]


def test_a_search_of_one_net_has_no_families(tmp_path: Path) -> None:
    step = SimpleNamespace(folder=tmp_path, result={"trials": 3})
    inputs: Any = {"prepare": step, "search": step}
    loop: Any = None
    assert card_families.family_rows(loop, inputs) == []
