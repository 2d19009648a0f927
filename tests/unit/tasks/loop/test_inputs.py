"""A step is handed what it declares; whatever else it asks for is refused with the place to declare it."""

from pathlib import Path

import pytest

from models.pipeline.records import StepRecord
from models.pipeline.steps import Step
from tasks.loop.inputs import Input, Inputs

STEP = Step("card", after=("train", "search"), results=("search",), external=("champion",))


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    def left(step: str) -> Input:
        (tmp_path / step / "figures").mkdir(parents=True)
        (tmp_path / step / "figures" / "b.svg").touch()
        record = StepRecord(
            step=step, key="k", parts={}, digest=f"d-{step}", result={"n": 3}, loop_id="l", finished=0.0
        )
        return Input(record, {"best.json": tmp_path / step / "best.json"}, tmp_path / step, STEP)

    return Inputs(STEP, {name: left(name) for name in STEP.after}, lambda name: f"the {name}")


def test_what_is_declared_is_there(inputs: Inputs, tmp_path: Path) -> None:
    assert inputs["train"].digest == "d-train"
    assert inputs["train"].file("best.json") == tmp_path / "train" / "best.json"
    assert inputs["train"].folder == tmp_path / "train"
    assert inputs["search"].result == {"n": 3}
    assert inputs["search"].figures == [tmp_path / "search" / "figures" / "b.svg"]
    assert inputs.external("champion") == "the champion"


def test_what_is_not_declared_is_refused(inputs: Inputs) -> None:
    with pytest.raises(KeyError, match="card reads 'judge': declare it in `after`"):
        inputs["judge"]
    with pytest.raises(KeyError, match="card reads the result of 'train': declare it in `results`"):
        inputs["train"].result  # noqa: B018
    with pytest.raises(KeyError, match="card reads the result of 'train'"):
        inputs["train"].figures  # noqa: B018
    with pytest.raises(KeyError, match="card reads 'feedback': declare it in `external`"):
        inputs.external("feedback")


def test_a_file_that_was_not_left_is_named_with_those_that_were(inputs: Inputs) -> None:
    with pytest.raises(KeyError, match=r"train left no file 'x': it left best\.json"):
        inputs["train"].file("x")
