"""What is asked is unlabelled, of the champion, and comes as a table that can be filled in and taken back."""

import io

import pyarrow as pa
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import OutputColumn
from models.errors import DataError, UsageError
from models.project_spec.reader import read_spec
from tasks.operations.label import accept, accept_file
from tasks.operations.predict import predict
from tasks.operations.suggest_labels import ask, write_csv
from tests.served_models import preparation_of, put_in_cache


@pytest.fixture
def predicted(make_project, monkeypatch, tmp_path):
    """A function that gives a project whose champion, of a task, has predicted some rows."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")

    def make(task: str = "binary", preparation: Preparation | None = None):
        project = make_project()
        put_in_cache(project, "tiny", task, preparation=preparation)
        rows = [f"t{n},{(n - 30) / 10},{'uvw'[n % 3]},n{n}" for n in range(60)]
        (tmp_path / "new.csv").write_text("\n".join(["tag,x,c,note", *rows]) + "\n")
        predict(project, read_spec(project.spec_path), tmp_path / "new.csv", id_column="tag")
        return project, read_spec(project.spec_path)

    return make


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_the_unsure_are_asked_and_the_labelled_not_again(predicted, task):
    project, spec = predicted(task)
    told = ask(project, spec, 6)
    assert told["of"] == 60
    assert told["table"].column_names == ["id", "x", "c", "tag", "note", "label"]
    assert told["table"].num_rows == 6
    assert "Zhdanov" in told["method"]
    if task == "binary":  # the model is unsure where x is near nought
        assert max(abs(x) for x in told["table"].column("x").to_pylist()) < 2.9
    ids = told["table"].column("id").to_pylist()
    accept(project, spec, pa.table({"id": ids, "label": ["yes"] * 6}), labeller="Ada")
    again = ask(project, spec, 60)
    assert again["of"] == 54
    assert set(again["table"].column("id").to_pylist()) & set(ids) == set()


def test_a_regression_asks_what_is_far_from_what_it_knows(predicted):
    project, spec = predicted("regression")
    rows = pa.table({"id": [f"t{n}" for n in range(30)], "label": [str((n - 30) / 10) for n in range(30)]})
    accept(project, spec, rows, labeller="Ada")
    told = ask(project, spec, 2)
    assert told["of"] == 30
    assert told["table"].column("id").to_pylist()[0] in ("t57", "t58", "t59")  # the largest x of all
    assert "iGS" in told["method"]


def test_quantiles_ask_what_a_regression_with_their_median_asks(predicted):
    """Their outputs are numbers of one row, and no chances of classes."""
    levels = (0.1, 0.5, 0.9)
    outputs = [OutputColumn(name=f"q{level}", column="y", quantile=level, scale=2.0) for level in levels]
    quantiles = preparation_of("quantile")
    target = quantiles.target.model_copy(update={"outputs": outputs})
    project, spec = predicted("quantile", quantiles.model_copy(update={"target": target}))
    rows = pa.table({"id": [f"t{n}" for n in range(30)], "label": [str((n - 30) / 10) for n in range(30)]})
    accept(project, spec, rows, labeller="Ada")
    told = ask(project, spec, 2)
    assert (told["of"], "iGS" in told["method"]) == (30, True)
    assert told["table"].column("id").to_pylist()[0] in ("t57", "t58", "t59")  # the largest x of all


def test_what_was_filled_in_is_taken_back(predicted, tmp_path):
    project, spec = predicted()
    told = ask(project, spec, 3)
    path = tmp_path / "to-label.csv"
    write_csv(told["table"], path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1] + "yes", lines[2] + "no", lines[3]]) + "\n")
    counts = accept_file(project, spec, path, labeller="Ada")
    assert (counts["taken"], counts["empty"], counts["waiting"]) == (2, 1, 0)
    stream = io.BytesIO()
    write_csv(told["table"], stream)
    assert stream.getvalue().decode().splitlines() == lines


def test_missing_values_are_empty_and_bytes_left_out(predicted, tmp_path, make_project):
    project, spec = predicted()
    (tmp_path / "more.csv").write_text("tag,x,c\nz,,\n")
    predict(project, spec, tmp_path / "more.csv", id_column="tag")
    rows = {row["id"]: row for row in ask(project, spec, 61)["table"].to_pylist()}
    assert rows["z"]["x"] is None


def test_with_nothing_to_ask_it_says_so(make_project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    project = make_project()
    put_in_cache(project, "tiny")
    with pytest.raises(DataError, match="no prediction that is without a label"):
        ask(project, read_spec(project.spec_path), 5)
    text = project.spec_path.read_text().replace("  target: y\n", "  kind: text\n")
    project.spec_path.write_text(text)
    with pytest.raises(UsageError, match="a text does not learn from single labels: add newer data"):
        ask(project, read_spec(project.spec_path), 5)
