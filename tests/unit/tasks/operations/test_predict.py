"""Batch prediction: every row once, in the output and in the log, whatever is killed or done again in between."""

import math
import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError, StoreError, UsageError
from models.inference import batch
from models.project_spec.reader import read_spec
from models.sources.row_batches import concatenated
from tasks.gc.project_files import files_of
from tasks.gc.snapshot import take
from tasks.operations import predict as predicting
from tasks.operations.predict import predict
from tasks.state.predictions import prediction_log
from tests.conftest import ROWS
from tests.served_models import put_in_cache

COUNT = 200


@pytest.fixture
def project(make_project, monkeypatch):
    """A project whose champion lies in the cache; the registry is away."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(batch, "PART_ROWS", 60)
    made = make_project()
    put_in_cache(made, "tiny")
    return made


def run(project, path: Path, **options):
    return predict(project, read_spec(project.spec_path), path, **options)


def given(folder: Path, text: str = ROWS, name: str = "new.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def with_ids(rows: int = COUNT) -> str:
    lines = ROWS.splitlines()
    return "\n".join([f"tag,{lines[0]}", *(f"t{n},{line}" for n, line in enumerate(lines[1 : rows + 1]))]) + "\n"


def logged(project) -> pa.Table:
    return concatenated(list(prediction_log(project.state("tiny")).scan()))


def test_every_row_has_its_prediction_id_and_version(project, tmp_path):
    told = run(project, given(tmp_path, with_ids()), id_column="tag")
    assert (told["rows"], told["logged"], told["version"]) == (COUNT, COUNT, "1")
    out = pq.read_table(told["out"])
    assert Path(told["out"]) == tmp_path / "new.predictions.parquet"
    assert out.column_names == ["id", "label", "probability_no", "probability_yes", "version"]
    assert out.column("id").to_pylist() == [f"t{n}" for n in range(COUNT)]
    chance = 1 / (1 + math.exp(-100 / 7))
    assert out.column("probability_yes")[100].as_py() == pytest.approx(chance, abs=1e-6)
    log = logged(project)
    assert {"id", "at", "version", "origin", "score", "scores", "input.x", "input.c", "raw.tag"} == set(
        log.column_names
    )
    assert log.column("id").to_pylist() == out.column("id").to_pylist()
    assert log.column("score").to_pylist() == out.column("probability_yes").to_pylist()
    assert log.column("origin").unique().to_pylist() == ["batch"]
    assert any("going on with version 1 from the cache" in note for note in told["notes"])
    assert any("'y' is the target" in note for note in told["notes"])


def test_redacted_columns_are_not_logged(project, tmp_path):
    project.spec_path.write_text(project.spec_path.read_text() + "serve: {log: {redact: [c, tag]}}\n")
    run(project, given(tmp_path, with_ids()), id_column="tag")
    log = logged(project)
    assert {"input.c", "raw.tag"}.isdisjoint(log.column_names)
    assert log.column("input.x").null_count == 0


def test_ids_are_made_where_there_are_none(project, tmp_path):
    told = run(project, given(tmp_path))
    ids = pq.read_table(told["out"]).column("id").to_pylist()
    assert len(set(ids)) == COUNT
    assert {one[14] for one in ids} == {"7"}
    assert logged(project).column("id").to_pylist() == ids


@pytest.mark.parametrize("kind", ["parquet", "folder", "tsv"])
def test_any_kind_of_file_gives_the_same(project, tmp_path, kind):
    expected = pq.read_table(run(project, given(tmp_path, with_ids()), id_column="tag")["out"])
    lines = with_ids().splitlines()
    place = tmp_path / "in"
    place.mkdir()
    if kind == "tsv":
        path = given(place, with_ids().replace(",", "\t"), "new.tsv")
    elif kind == "parquet":
        path = place / "new.parquet"
        import pyarrow.csv

        pq.write_table(pyarrow.csv.read_csv(tmp_path / "new.csv"), path)
    else:
        path = place
        given(place, "\n".join(lines[:71]) + "\n", "a.csv")
        given(place, "\n".join([lines[0], *lines[71:]]) + "\n", "b.csv")
    told = run(project, path, id_column="tag", out=tmp_path / "out.parquet")
    assert pq.read_table(told["out"]).equals(expected)


def test_done_again_it_has_nothing_to_do_and_elsewhere_it_is_the_same_logged_once(project, tmp_path):
    path = given(tmp_path)
    first = run(project, path)
    before = Path(first["out"]).stat().st_mtime_ns
    again = run(project, path)
    assert (again["logged"], again["rows"]) == (0, COUNT)
    assert Path(again["out"]).stat().st_mtime_ns == before
    other = run(project, path, out=tmp_path / "other.parquet")
    assert other["logged"] == 0
    assert pq.read_table(other["out"]).equals(pq.read_table(first["out"]))
    Path(first["out"]).unlink()
    assert run(project, path)["logged"] == 0
    assert Path(first["out"]).exists()
    assert logged(project).num_rows == COUNT


@pytest.mark.parametrize("where", ["second part", "first log entry", "output"])
def test_what_was_cut_short_goes_on_and_nothing_is_doubled(project, tmp_path, monkeypatch, where):
    path = given(tmp_path)
    calls = []

    def cut(function, after):
        def wrapped(*arguments):
            if len(calls) == after:
                raise KeyboardInterrupt
            calls.append(1)
            return function(*arguments)

        return wrapped

    with monkeypatch.context() as patch:
        if where == "second part":
            patch.setattr(predicting, "_write_part", cut(predicting._write_part, 2))
        elif where == "first log entry":
            patch.setattr(os, "fsync", cut(os.fsync, 5))
        else:
            patch.setattr(predicting, "_assemble", cut(predicting._assemble, 0))
        with pytest.raises(KeyboardInterrupt):
            run(project, path)
    assert not (tmp_path / "new.predictions.parquet").exists()
    parts = {one.name: one.stat().st_mtime_ns for one in project.state("tiny").glob("batch/*/*.parquet")}
    assert parts
    written = []
    original = predicting._write_part
    monkeypatch.setattr(predicting, "_write_part", lambda *given: (written.append(given[1].number), original(*given)))
    told = run(project, path)
    assert len(written) == 4 - len(parts)
    assert told["rows"] == COUNT
    log = logged(project)
    assert log.num_rows == COUNT
    assert log.column("id").to_pylist() == pq.read_table(told["out"]).column("id").to_pylist()
    assert list(project.state("tiny").glob("batch/*/*.parquet")) == []


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("x,k\n1,u\n", {}, r"the model takes 'c': no column 'c'"),
        ("x,c\n1,u\nhigh,v\n", {}, r"new\.csv, row 2, column 'x': got 'high', expected a number"),
        ("x,c,tag\n1,u,a\n2,v,\n", {"id_column": "tag"}, r"row 2, column 'tag': no id"),
        ("x,c,tag\n1,u,a\n2,v,b\n3,w,a\n", {"id_column": "tag"}, r"row 3, column 'tag': 'a' names an earlier row too"),
        ("x,c\n", {}, "no rows to predict"),
    ],
)  # fmt: skip
def test_bad_rows_are_told_and_nothing_is_written_or_logged(project, tmp_path, text, options, told):
    with pytest.raises(DataError, match=told):
        run(project, given(tmp_path, text), **options)
    assert not (tmp_path / "new.predictions.parquet").exists()
    assert prediction_log(project.state("tiny")).cursor() == 0


def test_wrong_usage_is_told(project, tmp_path):
    path = given(tmp_path)
    with pytest.raises(UsageError, match="--id key: no column 'key'"):
        run(project, path, id_column="key")
    (tmp_path / "mine.parquet").write_text("not yours")
    with pytest.raises(UsageError, match="did not make: name another"):
        run(project, path, out=tmp_path / "mine.parquet")
    with pytest.raises(UsageError, match=r"expected a \.parquet file"):
        run(project, path, out=tmp_path / "out.csv")
    with pytest.raises(UsageError, match="lies in the folder that is read"):
        run(project, tmp_path, out=tmp_path / "out.parquet")
    assert (tmp_path / "mine.parquet").read_text() == "not yours"


def test_two_at_once_do_not_do_the_same_work(project, tmp_path, monkeypatch):
    path = given(tmp_path)

    def meanwhile(*_):
        with pytest.raises(StoreError, match="another process predicts it"):
            run(project, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(predicting, "_make_parts", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        run(project, path)


@pytest.mark.parametrize(
    ("body", "told"),
    [("frame['x'] * 2", "called on pieces"), ("frame['x'] - frame['x'].mean()", "on the whole at once")],
)
def test_made_features_are_made_on_pieces_only_where_that_is_sound(project, tmp_path, body, told):
    (project.folder / "features.py").write_text(f"def make(frame):\n    return frame.assign(x={body})\n")
    features = "  features: {make: './features.py:make'}\n"
    project.spec_path.write_text(project.spec_path.read_text() + features)
    path = given(tmp_path)
    answer = run(project, path)
    assert any(told in note for note in answer["notes"])
    log = logged(project)
    given_x = [n / 7 for n in range(COUNT)]
    mean = sum(given_x) / COUNT
    expected = [x * 2 if "pieces" in told else x - mean for x in given_x]
    assert log.column("input.x").to_pylist() == pytest.approx(expected)
    assert log.column("raw.x").to_pylist() == pytest.approx(given_x)  # as it was given, for the next dataset


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_scores_are_logged_by_task(project, tmp_path, task):
    put_in_cache(project, "tiny", task)
    told = run(project, given(tmp_path))
    out, log = pq.read_table(told["out"]), logged(project)
    if task == "regression":
        assert out.column_names == ["id", "prediction", "version"]
        assert log.column("score").to_pylist() == out.column("prediction").to_pylist()
    else:
        assert log.column("score").null_count == COUNT
        assert log.column("scores")[9].as_py() == [
            out.column(f"probability_{one}")[9].as_py() for one in ("no", "perhaps", "yes")
        ]


def test_what_is_done_is_no_garbage_and_logs_nothing_again(project, tmp_path):
    state = project.state("tiny")
    run(project, given(tmp_path))
    left = state / "batch" / "0123456789abcdef"
    left.mkdir()
    for folder in (state / "batch").iterdir():
        for path in (*folder.iterdir(), folder):
            os.utime(path, (0, 0))
    batches = files_of("batch predictions")(take(project.workspace, ["tiny"], {}, {}))
    assert [batch.path for batch in batches if not batch.reason] == [left]
    assert run(project, tmp_path / "new.csv")["logged"] == 0


def test_a_folder_that_grows_logs_what_is_new_and_calls_the_rest_what_it_was(project, tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    lines = ROWS.splitlines()
    given(place, "\n".join(lines[:51]) + "\n", "a.csv")
    first = run(project, place)
    before = pq.read_table(first["out"])
    given(place, "\n".join([lines[0], *lines[51:81]]) + "\n", "b.csv")
    given(place, "\n".join(lines[:51]) + "\n", "copy.csv")
    told = run(project, place)
    assert (told["rows"], told["logged"]) == (80, 30)
    assert any("copy.csv has the same content as" in note for note in told["notes"])
    assert pq.read_table(told["out"]).slice(0, 50).equals(before)
    assert sorted(logged(project).column("id").to_pylist()) == sorted(
        pq.read_table(told["out"]).column("id").to_pylist()
    )
    alone = run(project, place / "b.csv")  # its output lies in the folder now, and is no input of it
    assert (alone["rows"], alone["logged"]) == (30, 0)
    assert run(project, place)["logged"] == 0


def test_a_partition_is_a_column_and_hidden_files_are_no_rows(project, tmp_path):
    """Files of equal content in two folders hold different rows."""
    rows = pa.table({"x": [float(n) for n in range(20)]})
    for place in ("c=u/a.parquet", "c=v/a.parquet", "_temporary/c=w/a.parquet", "c=u/.a.parquet"):
        (tmp_path / "in" / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, tmp_path / "in" / place)
    summary = run(project, tmp_path / "in")
    assert (summary["rows"], summary["logged"]) == (40, 40)
    assert sorted(logged(project).column("input.c").to_pylist()) == ["u"] * 20 + ["v"] * 20
    assert len(set(pq.read_table(summary["out"]).column("id").to_pylist())) == 40
    assert run(project, tmp_path / "in")["logged"] == 0


def test_string_views_are_texts(project, tmp_path):
    views = pa.table({"x": [1.0, 2.0], "c": pa.array(["u", None], pa.string_view())})
    pq.write_table(views, tmp_path / "in.parquet")
    assert run(project, tmp_path / "in.parquet")["rows"] == 2
    assert logged(project).column("input.c").to_pylist() == ["u", ""]


def test_ids_of_pictures_are_their_paths_below_the_folder(tmp_path, monkeypatch):
    files = [tmp_path / "pets" / name for name in ("a.png", "cat/b.png")]
    work = SimpleNamespace(
        spec=SimpleNamespace(data=SimpleNamespace(image=SimpleNamespace(column="image"))),
        id_column="image",
        source_folder=Path("pets"),
    )
    monkeypatch.chdir(tmp_path)
    unit = SimpleNamespace(files=[path.relative_to(tmp_path) for path in files], display_name="pets")
    assert predicting._paths_of_pictures(work, unit).column("image").to_pylist() == ["a.png", "cat/b.png"]
    (tmp_path / "pets").mkdir()
    pq.write_table(pa.table({"image": [b"pixels"]}), "pets/new.parquet")
    unit = SimpleNamespace(files=[Path("pets/new.parquet")], display_name="new.parquet")
    with pytest.raises(UsageError, match=r"new\.parquet: --id image: holds pictures, expected a column of ids"):
        predicting._paths_of_pictures(work, unit)


def test_an_output_beside_the_folder_is_no_output_in_it(tmp_path):
    (tmp_path / "rows").mkdir()
    predicting._check_out(tmp_path / "rows" / ".." / "out.parquet", tmp_path / "rows")
    with pytest.raises(UsageError, match="it lies in the folder that is read"):
        predicting._check_out(tmp_path / "rows" / "out.parquet", tmp_path / "rows")
