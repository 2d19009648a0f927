"""The probe is the first act of the search, or of the training where there is none, and its result is recorded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.project_spec.blocks import Spec
from tasks.loop.loop import StepResult
from tasks.loop.probe import after_probe, probe, probed_by

NET = "sklearn.naive_bayes:GaussianNB"


def _spec(net: str = NET, trials: int = 3) -> Spec:
    blocks: dict[str, Any] = {"name": "t", "data": {"source": "a.csv", "target": "y"}, "search": {"trials": trials}}
    return Spec.model_validate({**blocks, "model": {"net": net, "arguments": {"var_smoothing": 1e-8}}})


class Pool:
    """Answers as a child would, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def call(self, reference: str, **keywords: Any) -> float:
        assert reference == "models.estimators.probe:probe_tasks"
        self.calls.append(keywords)
        return 1e-7


def _loop(spec: Spec) -> Any:
    notes: list[str] = []
    project = SimpleNamespace(folder=Path("shop"))
    return SimpleNamespace(
        spec=spec, project=project, rank_pool=Pool(), notes=notes, report=SimpleNamespace(note=notes.append)
    )


@pytest.mark.parametrize(
    ("net", "trials", "steps"),
    [
        (NET, 3, ["search"]),
        (NET, 0, ["train"]),
        ("./boosted.py:FAMILY", 3, ["search"]),
        ("./net.py:Net", 3, []),
        ("trees", 0, []),
        ("auto", 3, []),
    ],
)
def test_which_step_probes(net: str, trials: int, steps: list[str]) -> None:
    spec = _spec(net, trials).model_copy(update={"model": _spec(net).model.model_copy(update={"arguments": {}})})
    assert [step for step in ("search", "train", "export") if probed_by(spec, step)] == steps


def test_the_result_of_the_step_says_what_the_probe_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preparation, "load", lambda _: SimpleNamespace(task="multiclass"))
    loop, inputs = _loop(_spec()), {"prepare": SimpleNamespace(folder=tmp_path)}
    act = after_probe(loop, "search")(lambda *_: StepResult([tmp_path], {"trials": 3}))
    result = act(inputs, tmp_path)  # type: ignore[arg-type]
    assert result == StepResult([tmp_path], {"trials": 3, "probe": {NET: 1e-7}})
    called = {"net": NET, "base": "shop", "tasks": ["multiclass"], "arguments": {"var_smoothing": 1e-8}}
    assert loop.rank_pool.calls == [called]
    assert loop.notes == [f"probe: {NET}: its graph is 1e-07 apart from it at most"]


def test_nothing_is_done_after_a_probe_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preparation, "load", lambda _: SimpleNamespace(task="binary"))
    loop, done = _loop(_spec(trials=0)), []

    def refuse(*_: Any, **__: Any) -> float:
        raise TrainingError("0.6 apart")

    loop.rank_pool.call = refuse
    act = after_probe(loop, "train")(lambda *_: done.append("trained") or StepResult())
    with pytest.raises(TrainingError, match="apart"):
        act({"prepare": SimpleNamespace(folder=tmp_path)}, tmp_path)  # type: ignore[dict-item]
    assert not done


def test_without_prepared_data_the_spec_may_say_the_task() -> None:
    pool: Any = Pool()
    stated = _spec().model_copy(update={"data": _spec().data.model_copy(update={"task": "binary"})})
    assert probe(pool, stated, Path()) == {NET: 1e-7}
    probe(pool, _spec(), Path())
    assert [called["tasks"] for called in pool.calls] == [["binary"], []]
