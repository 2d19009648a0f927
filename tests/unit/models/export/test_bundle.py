"""The edge bundle: its files, and its script in a process that can import onnxruntime and numpy and nothing else."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from models.data.preparation import Preparation
from models.export.bundle import FILES, SCRIPT, bundle, example, schema
from models.inference.loaded_model import LoadedModel
from models.inference.portable import MODEL_FILE
from models.inputs.numeric.record import NumericInput
from models.serving.mlflow_scoring import scoring_of_csv
from tests.served_models import preparation_of, write_served
from tests.wide import wide

BARE = ("onnxruntime", "numpy", "numpy.libs", "flatbuffers", "google")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with onnxruntime and what it brings."""
    place = tmp_path_factory.mktemp("bare")
    spec = find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    for name in BARE:
        found = Path(spec.origin).parents[1] / name
        if found.exists():
            (place / name).symlink_to(found)
    return place


def run(bare: Path, folder: Path, rows: Path, *, expect: int = 0) -> list[dict[str, object]]:
    command = [sys.executable, "-S", str(folder / "predict.py"), str(rows)]
    environ = {
        "PYTHONPATH": str(bare),
        "PATH": os.environ["PATH"],
        "PYTHONIOENCODING": "utf-8",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=folder)
    assert done.returncode == expect, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bundled(folder: Path, task: str, preparation: Preparation | None = None) -> LoadedModel:
    write_served(folder, task, preparation)
    served = LoadedModel("tiny", "3", folder)
    for name, text in bundle(served, {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    return served


def expected(served: LoadedModel, records: list[dict[str, object]]) -> list[dict[str, object]]:
    return served.records(served.answer(served.schema.from_records(records).feed))


def assert_same(got: list[dict[str, object]], wanted: list[dict[str, object]]) -> None:
    assert len(got) == len(wanted) > 0
    for one, other in zip(got, wanted, strict=True):
        assert set(one) == set(other)
        for name, value in other.items():
            assert one[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-6)), name


def test_nothing_else_can_be_imported(bare: Path, tmp_path: Path) -> None:
    names = ("onnxruntime", "numpy", "onnx", "pydantic", "models")
    (tmp_path / "predict.py").write_text(
        f"import json; from importlib.util import find_spec as f; print(json.dumps({{n: bool(f(n)) for n in {names}}}))"
    )
    (found,) = run(bare, tmp_path, tmp_path)
    assert [name for name in names if found[name]] == ["onnxruntime", "numpy"]


def test_a_table_is_read_from_json_and_csv_as_the_server_does(bare: Path, tmp_path: Path) -> None:
    served = bundled(tmp_path, "binary")
    records = [{"x": 1.5, "c": "u"}, {"x": None, "c": None}, {"x": -2, "c": 'a "quoted",\nvalue'}, {"x": 3, "c": True}]
    (tmp_path / "rows.json").write_text(json.dumps(records))
    assert_same(run(bare, tmp_path, tmp_path / "rows.json"), expected(served, records))
    (tmp_path / "rows.csv").write_text('c,x,more\nu,1.5,9\n,,9\n"a ""quoted"",\nvalue",-2,9\ntrue,3,9\n')
    assert_same(run(bare, tmp_path, tmp_path / "rows.csv"), expected(served, records))
    (tmp_path / "one.json").write_text(json.dumps(records[0]))
    assert_same(run(bare, tmp_path, tmp_path / "one.json"), expected(served, records[:1]))


def test_onnx_runtime_leaves_no_mark_of_its_telemetry(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled(tmp_path / "bundle", "binary")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    run(bare, tmp_path / "bundle", tmp_path / "bundle" / "example.json")
    assert list((tmp_path / "temporary").iterdir()) == []  # `.ses`: an id and the time


def test_cells_of_a_csv_are_what_they_are_to_the_server(bare: Path, tmp_path: Path) -> None:
    served = bundled(tmp_path, "binary")
    body = "c,x\nu, TRUE \nNA,n/a\nnull, \nv,false\n"
    (tmp_path / "rows.csv").write_text(body)
    rows = scoring_of_csv(body.encode()).rows(served.schema)
    assert_same(run(bare, tmp_path, tmp_path / "rows.csv"), served.records(served.answer(rows.feed)))


@pytest.mark.parametrize("task", ["binary", wide("multiclass"), wide("regression"), "series", "image", "language"])
def test_the_example_of_the_bundle_is_predicted(bare: Path, tmp_path: Path, task: str) -> None:
    served = bundled(tmp_path, task)
    records = json.loads((tmp_path / "example.json").read_text(encoding="utf-8"))
    assert_same(run(bare, tmp_path, tmp_path / "example.json"), expected(served, records))


def test_a_series_is_predicted_from_its_last_steps(bare: Path, tmp_path: Path) -> None:
    served = bundled(tmp_path, "series")
    steps: list[dict[str, object]] = [{"x": float(at), "y": None if at == 4 else 1.0} for at in range(6)]
    lines = ["x,y", *(f"{step['x']},{'' if step['y'] is None else step['y']}" for step in steps)]
    (tmp_path / "steps.csv").write_text("\n".join(lines))
    assert_same(run(bare, tmp_path, tmp_path / "steps.csv"), expected(served, steps[-3:]))
    (tmp_path / "steps.json").write_text(json.dumps(steps[:2]))
    run(bare, tmp_path, tmp_path / "steps.json", expect=1)


def test_what_is_known_beforehand_comes_with_the_steps_after_the_window(bare: Path, tmp_path: Path) -> None:
    preparation = preparation_of("series")
    assert preparation.window is not None
    future = NumericInput(name="x_h2", fill=0.0, source="x", ahead=2)
    window = preparation.window.model_copy(update={"series_key": "shop"})
    changed = preparation.with_inputs("numeric", [preparation.numeric[1], future])
    served = bundled(tmp_path, "series", changed.model_copy(update={"window": window}))
    steps: list[dict[str, object]] = [
        {"shop": shop, "x": at * scale, "y": 1.0 if at < 4 else None}
        for at in range(6)
        for shop, scale in (("a", 1.0), ("b", 10.0))
    ]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    got = run(bare, tmp_path, tmp_path / "steps.json")
    assert_same(got, expected(served, steps[2:]))
    assert len(got) == 2
    rows = example(served.preparation)
    assert_same(run(bare, tmp_path, tmp_path / "example.json"), expected(served, rows))
    (tmp_path / "steps.json").write_text(json.dumps([*steps[:-1], {**steps[-1], "x": None}]))
    run(bare, tmp_path, tmp_path / "steps.json", expect=1)


def test_a_text_longer_than_a_window_is_read_whole(bare: Path, tmp_path: Path) -> None:
    served = bundled(tmp_path, "language")
    records: list[dict[str, object]] = [{"line": "abc" * 9}, {"line": "b"}]
    (tmp_path / "texts.json").write_text(json.dumps(records))
    got = run(bare, tmp_path, tmp_path / "texts.json")
    assert_same(got, expected(served, records))
    assert all(np.isfinite(float(each["bits_per_char"])) for each in got)  # type: ignore[arg-type]


def served(folder: Path, task: str = "binary") -> LoadedModel:
    write_served(folder, task)
    return LoadedModel("tiny", "3", folder)


@pytest.mark.parametrize("task", ["binary", "regression", "series", "image", "language"])
def test_every_kind_has_all_files_and_a_schema_that_holds_its_example(tmp_path: Path, task: str) -> None:
    version = served(tmp_path, task)
    texts = bundle(version, {"made by": "a test"})
    assert {*texts, MODEL_FILE} == set(FILES)
    told, rows = json.loads(texts["schema.json"]), json.loads(texts["example.json"])
    assert told == json.loads(json.dumps(schema(version)))
    record = told["$defs"]["record"]
    for row in rows:
        assert set(record["required"]) <= set(row) <= set(record["properties"])
    assert "pip install onnxruntime" in texts["README.md"]
    assert "* made by: a test" in texts["README.md"]


def test_the_schema_names_the_tensors_of_the_graph(tmp_path: Path) -> None:
    tensors = schema(served(tmp_path, "language"))["tensors"]
    assert [each["name"] for each in tensors["inputs"]] == ["text"]
    assert [each["name"] for each in tensors["outputs"]] == ["log_probabilities", "bits"]


def test_a_series_needs_the_steps_of_a_window(tmp_path: Path) -> None:
    version = served(tmp_path, "series")
    assert schema(version)["minItems"] == len(example(version.preparation)) == 3


@pytest.mark.parametrize("task", ["binary", "series", "image", "language"])
def test_the_example_is_of_usual_values_and_can_be_answered(tmp_path: Path, task: str) -> None:
    version = served(tmp_path, task)
    rows = example(version.preparation)
    assert version.answer(version.schema.from_records(rows).feed).num_rows == 1
    if task == "binary":
        assert rows == [{"x": 0.0, "c": "u"}]


def test_the_script_has_twenty_lines_at_most(tmp_path: Path) -> None:
    assert len(bundle(served(tmp_path), {})[SCRIPT].splitlines()) <= 20


def test_rows_that_the_model_does_not_accept_end_the_script_with_their_place(bare: Path, tmp_path: Path) -> None:
    bundled(tmp_path, "binary")
    (tmp_path / "rows.csv").write_text("c,x\nu,one\n")
    run(bare, tmp_path, tmp_path / "rows.csv", expect=1)
