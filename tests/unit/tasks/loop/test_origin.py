"""Training begins with the weights of a net; of any other model there are none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.training.checkpoints.weights import save_weights
from models.training.job import JOB_FILE, WEIGHTS_FILE
from tasks.loop import origin
from tasks.loop.inputs import Inputs
from tasks.loop.loop import Loop


def begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, net: str, weights: str
) -> tuple[origin.TrainingStart, list[str]]:
    """What training begins with, and what the loop notes, if version 3 is of the net and is what the spec names."""
    (folder / JOB_FILE).write_text(json.dumps({"model": {"net": net, "arguments": {"hidden": 8}}}))
    save_weights(folder / WEIGHTS_FILE, {"w": torch.ones(2)})
    monkeypatch.setattr(origin, "cached_version", lambda *_: SimpleNamespace(folder=folder))
    spec = {"name": "t", "data": {"source": "x.csv", "target": "y"}, "train": {"start": {"weights": weights}}}
    notes: list[str] = []
    loop: Any = SimpleNamespace(
        spec=Spec.model_validate(spec), workspace=None, report=SimpleNamespace(note=notes.append)
    )
    inputs: Any = SimpleNamespace(step=SimpleNamespace(name="train"), external=lambda _: "3:abc")
    return origin.begin(cast("Loop", loop), cast("Inputs", inputs)), notes


def test_training_begins_with_the_net_of_the_champion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, notes = begun(tmp_path, monkeypatch, "mlp", "champion")
    assert start.origin is not None
    assert (start.origin.weights, start.model["arguments"]) == (tmp_path / WEIGHTS_FILE, {"hidden": 8})
    assert notes == ["train: begins with t version 3"]


@pytest.mark.parametrize("net", ["ensemble", "trees", "linear"])
def test_a_champion_that_is_no_single_net_gives_no_weights(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, notes = begun(tmp_path, monkeypatch, net, "champion")
    assert (start.origin, start.model) == (None, {})
    assert notes == [
        f"train: the champion (version 3) is of model.net {net} and has no weights to begin with: training begins fresh"
    ]
    with pytest.raises(UsageError, match=rf"train\.start\.weights: got version 3, .* {net}, expected .*: name another"):
        begun(tmp_path, monkeypatch, net, "3")
