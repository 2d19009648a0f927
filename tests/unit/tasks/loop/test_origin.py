"""Training begins with the weights of a net; of any other model there are none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from models.errors import UsageError
from models.inputs.gap.record import GapInput
from models.project_spec.blocks import Model, Spec
from models.training.checkpoints.weights import save_weights
from models.training.job import JOB_FILE, WEIGHTS_FILE, InitialWeights
from tasks.loop import origin
from tasks.loop.inputs import Inputs
from tasks.loop.loop import Loop
from tests.finished_jobs import table_preparation


class PreparedInputs:
    """The inputs of a step `train` with the folder of prepared rows, which may be absent."""

    step = SimpleNamespace(name="train")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def external(self, name: str) -> str:
        return "3:abc"

    def __getitem__(self, name: str) -> Any:
        return {"prepare": self}[name]


def begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, net: str, weights: str, nets: Sequence[str] = ("mlp",), **start: Any
) -> tuple[InitialWeights | None, list[str]]:
    """What training begins with, and what the loop notes, if version 3 is of the net and is what the spec names."""
    (folder / JOB_FILE).write_text(json.dumps({"model": {"net": net, "arguments": {"hidden": 8}}}))
    save_weights(folder / WEIGHTS_FILE, {"w": torch.ones(2)})
    monkeypatch.setattr(origin, "cached_version", lambda *_: SimpleNamespace(folder=folder))
    data = {"source": "x.csv", "target": "y"} if net != "auto" else {"source": "x.txt", "kind": "text"}
    spec = {"name": "t", "data": data, "train": {"start": {"weights": weights, **start}}}
    notes: list[str] = []
    loop: Any = SimpleNamespace(
        spec=Spec.model_validate(spec), workspace=None, report=SimpleNamespace(note=notes.append)
    )
    inputs: Any = PreparedInputs(folder / "prepared")
    return origin.begin(cast("Loop", loop), cast("Inputs", inputs), nets), notes


def test_training_begins_with_the_net_of_the_champion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, notes = begun(tmp_path, monkeypatch, "mlp", "champion")
    assert start is not None
    assert (start.weights, start.model) == (tmp_path / WEIGHTS_FILE, Model(net="mlp", arguments={"hidden": 8}))
    assert notes == ["train: begins with t version 3"]
    start, notes = begun(tmp_path, monkeypatch, "mlp", "champion", ("trees", "linear", "mlp"))
    assert (start is None, notes) == (False, ["train: mlp begins with t version 3"])


def test_a_net_that_was_registered_as_auto_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = begun(tmp_path, monkeypatch, "auto", "champion", ("decoder",))
    assert start is not None
    assert start.model == Model(net="decoder", arguments={"hidden": 8})


@pytest.mark.parametrize("net", ["ensemble", "trees", "linear", "tabm"])
def test_a_champion_of_another_kind_gives_no_weights_and_a_version_of_one_is_refused(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, notes = begun(tmp_path, monkeypatch, net, "champion")
    assert start is None
    assert notes == [
        f"train: the champion (version 3) is of model.net {net}, which has no weights for mlp: training begins fresh"
    ]
    cure = "say model.net: tabm" if net == "tabm" else "leave train.start out"
    with pytest.raises(
        UsageError,
        match=rf"got version 3, .* model\.net {net}, expected a version of mlp: name another version, or {cure}$",
    ):
        begun(tmp_path, monkeypatch, net, "3")


def test_layers_of_another_net_are_tried_where_some_are_enough_or_the_net_is_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun(tmp_path, monkeypatch, "tabm", "3", partial=True)[0] is not None
    assert begun(tmp_path, monkeypatch, "./old.py:Net", "3", ("./new.py:Net",))[0] is not None
    assert begun(tmp_path, monkeypatch, "trees", "champion", partial=True)[0] is None


def test_a_champion_without_the_gaps_of_these_rows_gives_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows decide which gaps are inputs: no loop may fail by it."""
    before = table_preparation()
    before.save(tmp_path)
    (tmp_path / "prepared").mkdir()
    before.save(tmp_path / "prepared")
    assert begun(tmp_path, monkeypatch, "mlp", "champion")[0] is not None
    gap = GapInput(name="n/1 is missing", of="n/1")
    before.with_inputs("gap", [gap]).save(tmp_path / "prepared")
    start, notes = begun(tmp_path, monkeypatch, "mlp", "champion")
    assert start is None
    assert notes == [
        "train: the champion (version 3) has other inputs than these rows give: n/1 is missing: training begins fresh"
    ]
    assert begun(tmp_path, monkeypatch, "mlp", "3")[0] is not None
