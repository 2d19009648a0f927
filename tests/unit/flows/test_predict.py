"""The flow of batch prediction takes paths relative to the project, whoever runs it and wherever."""

import pyarrow.parquet as pq

from flows.predict import predict
from tests.conftest import ROWS
from tests.served_models import put_in_cache


def test_paths_are_relative_to_the_projects_folder(make_project, monkeypatch, tmp_path):
    project = make_project()
    monkeypatch.setenv("LOOPLINE_HOME", str(project.workspace.root))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    put_in_cache(project, "tiny")
    (project.folder / "in").mkdir()
    (project.folder / "in" / "new.csv").write_text(ROWS)
    told = predict.fn(str(project.folder), "in", "out.parquet")
    assert (told["rows"], told["logged"]) == (200, 200)
    assert pq.read_table(project.folder / "out.parquet").num_rows == 200
    assert predict.fn(str(project.folder), "in", "out.parquet")["logged"] == 0
