"""What a spec says of keys is worked out once, and anew for another spec of the same file."""

from pathlib import Path

from models.pipeline.steps import BY_NAME
from models.project_spec.blocks import Spec
from tasks.loop.spec_code import SpecCode, code_of


def spec(**data: object) -> Spec:
    return Spec.model_validate({"name": "t", "data": {"source": "x.csv", "target": "y", **data}})


def test_another_spec_of_a_file_is_worked_out_anew(tmp_path: Path) -> None:
    path, before, after = tmp_path / "project.yaml", spec(), spec(na_is_text=["town"])
    step = BY_NAME["ingest"]
    first = code_of(before, path)
    assert code_of(before, path) is first
    assert first.settings(step) != code_of(after, path).settings(step)


def test_only_a_teams_own_code_is_own() -> None:
    step = BY_NAME["ingest"]
    ready, own = SpecCode(spec()), SpecCode(spec(source="./rows.py:load"))
    assert ready.code(step, has_feedback=False) == ([], set(), False)
    assert own.code(step, has_feedback=False) == (["./rows.py:load"], set(), True)
    packaged = SpecCode(spec(source="warehouse.rows:load"))
    assert packaged.code(step, has_feedback=False) == (["warehouse.rows:load"], {"warehouse"}, True)


def test_expectations_of_own_classes_check_labelled_rows_too() -> None:
    checked = SpecCode(spec(expectations=[{"expect": "./checks.py:Even", "arguments": {"column": "x"}}]))
    step = BY_NAME["ingest"]
    assert checked.code(step, has_feedback=True).sources == ["./checks.py:Even"]
    assert checked.code(step, has_feedback=False).sources == []
