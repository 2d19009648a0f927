"""What goes out comes back: predictions, their labels, what to ask, and a next dataset that has learnt of it."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tasks.host import ports
from tasks.host.http_guard import SERVE_TOKEN, token_path
from tasks.host.workspace import Workspace
from tasks.state.predictions import joined, prediction_log
from tests import warm
from tests.e2e.conftest import MakeHome
from tests.running import PENGUINS, ROOT, Loopline

pytestmark = pytest.mark.e2e

SPEC = """\
goal: {metric: accuracy, good_enough: 0.5}
data:
  source: some.csv
  target: species
  split: {by: stratified, validation: 0.2, test: 0.25}
  features: {drop: [year]}
  expectations:
    - {expect: column_values_to_be_between, arguments: {column: body_mass_g, min_value: 2000, max_value: 8000}}
search: {trials: 0}
train: {epochs: 8, batch: 32, lr: 0.01, threads: 1}
judge: {margin: 0.2, min_samples: 30}
"""
MANY = 150_000


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def penguins() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Two thirds that the project knows, and a third that come later, each with a tag."""
    with PENGUINS.open() as file:
        rows = list(csv.DictReader(file))
    later = [{"tag": f"t{number}", **row} for number, row in enumerate(rows) if number % 3 == 0]
    return [row for number, row in enumerate(rows) if number % 3], later


@pytest.fixture(scope="module")
def home(copy_whole: MakeHome) -> Loopline:
    """A workspace whose project has a champion, which knows the later ones too."""
    return copy_whole("feedback")


@pytest.fixture(scope="module")
def learner(make_home: MakeHome, penguins) -> Loopline:
    """A workspace whose project's champion has not seen the later ones."""
    made = make_home("learner")
    folder = made.project("whole", SPEC)
    write(folder / "some.csv", penguins[0])
    made("run", "whole", "--json").ok()
    predict_later(made, penguins, folder)
    return made


@pytest.fixture(scope="module")
def predicted(home: Loopline, penguins, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The later ones, predicted: the output."""
    return predict_later(home, penguins, tmp_path_factory.mktemp("later"))


def predict_later(home: Loopline, penguins, place: Path) -> Path:
    path = write(place / "later.csv", [{k: v for k, v in row.items() if k != "species"} for row in penguins[1]])
    told = home("predict", "whole", str(path), "--id", "tag", "--json").ok().json
    assert (told["rows"], told["logged"], told["version"]) == (len(penguins[1]), len(penguins[1]), "1")
    return Path(told["out"])


def test_a_file_is_predicted_by_the_champion(home: Loopline, penguins, predicted: Path):
    found = {row["id"]: row["label"] for row in pq.read_table(predicted).to_pylist()}
    right = sum(found[row["tag"]] == row["species"] for row in penguins[1])
    assert right / len(found) > 0.8
    again = home("predict", "whole", str(predicted.with_name("later.csv")), "--id", "tag").ok()
    assert "(0 logged)" in again.out
    refused = home("predict", "whole", str(predicted.with_name("later.csv")), "--id", "name")
    assert refused.code == 2
    assert "no column 'name'" in refused.err


def test_killed_it_goes_on_and_each_row_is_there_once(home: Loopline, penguins, tmp_path: Path):
    header, *lines = PENGUINS.read_text().splitlines()
    rows = [f"k{number},{lines[number % len(lines)]}" for number in range(MANY)]
    path = tmp_path / "many.csv"
    path.write_text("\n".join([f"tag,{header}", *rows]) + "\n")
    log = prediction_log(home.state("whole"))
    before = sum(part.rows for part in log.parts())
    out = tmp_path / "out.parquet"
    parts = 0
    for _ in range(2):  # each time one part further
        running = home.start("predict", "whole", str(path), "--id", "tag", "--out", str(out))
        running.wait_until(lambda seen=parts: len(list(home.state("whole").glob("batch/*/*.parquet"))) > seen)
        running.kill()
        assert not out.exists()
        parts = len(list(home.state("whole").glob("batch/*/*.parquet")))
    home("predict", "whole", str(path), "--id", "tag", "--out", str(out)).ok()
    table = pq.read_table(out)
    assert table.column("id").to_pylist() == [f"k{number}" for number in range(MANY)]
    assert sum(part.rows for part in log.parts()) == before + MANY
    by_row = table.column("label").to_pylist()
    assert by_row[: len(lines)] == by_row[len(lines) : 2 * len(lines)]
    assert list(home.state("whole").glob("batch/*/*.parquet")) == []


@pytest.mark.wide
def test_labels_come_and_a_next_run_learns_of_them(learner: Loopline, penguins, tmp_path: Path):
    labels = write(
        tmp_path / "labels.csv", [{"tag": row["tag"], "species": row["species"]} for row in penguins[1][:60]]
    )
    told = learner("label", "whole", str(labels), "--id", "tag", "--by", "Ada", "--json").ok().json
    assert told == {"taken": 60, "corrected": 0, "repeated": 0, "waiting": 0, "empty": 0}
    assert sum(table.num_rows for table in joined(learner.state("whole"), labelled=True)) == 60
    wrong = write(tmp_path / "wrong.csv", [{"id": "t0", "label": "Gentoo"}, {"id": "t3", "label": "Adeli"}])
    refused = learner("label", "whole", str(wrong))
    assert refused.code == 1
    assert "row 2: got label 'Adeli' of 'species'" in refused.err
    assert "did you mean 'Adelie'?" in refused.err

    plan = {item["step"]: item for item in learner("plan", "whole", "--json").ok().json}
    assert plan["ingest"]["state"] == "run"
    assert plan["ingest"]["reasons"][0].startswith("labelled predictions: none -> 60 (")
    learner("run", "whole", "--json")
    record = learner.record("whole", "ingest")["result"]
    assert record["feedback"]["joined"] + record["feedback"]["known"] == 60
    assert record["rows"] == len(penguins[0]) + record["feedback"]["joined"]
    origin = pq.read_table(learner.home / "projects" / "whole" / "data" / "raw" / "feedback.parquet")
    assert set(origin.column("labelled_by").to_pylist()) == {"Ada"}
    raw = pq.read_table(learner.home / "projects" / "whole" / "data" / "raw" / "raw.parquet")
    assert "tag" not in raw.column_names
    truth = {row["tag"]: row for row in penguins[1]}
    for row in origin.to_pylist():
        assert str(raw.column("species")[row["row"]]) == truth[row["id"]]["species"]
        assert str(raw.column("island")[row["row"]]) == truth[row["id"]]["island"]
    assert "up to date" in learner.dvc("status").ok().out
    assert {item["state"] for item in learner("plan", "whole", "--json").ok().json} == {"done"}
    learner("label", "whole", str(labels), "--id", "tag").ok()
    assert learner("run", "whole").out.startswith("Nothing to do")


@pytest.mark.usefixtures("predicted")
def test_what_is_asked_can_be_filled_in_and_given_back(home: Loopline, tmp_path: Path):
    path = tmp_path / "to-label.csv"
    home("suggest-labels", "whole", "-n", "12", "--out", str(path)).ok()
    with path.open() as file:
        asked = list(csv.DictReader(file))
    assert len(asked) == 12
    assert {row["label"] for row in asked} == {""}
    assert {"id", "island", "bill_length_mm", "year", "label"} <= set(asked[0])
    assert len({row["id"] for row in asked}) == 12
    answered = write(
        tmp_path / "answered.csv", [{**row, "label": "Adelie" if n < 5 else ""} for n, row in enumerate(asked)]
    )
    counts = home("label", "whole", str(answered), "--json").ok().json
    assert (counts["taken"], counts["empty"]) == (5, 7)


@contextlib.contextmanager
def compactor(home: Loopline) -> Iterator[warm.Started]:
    """The platform's service, which moves and merges what is in the logs; killed at the end of the block."""
    program, environ = (
        ("-m", "tasks.operations.compact", str(home.home)),
        {**os.environ, "LOOPLINE_HOME": str(home.home)},
    )
    with Path(os.devnull).open("wb") as nothing:
        process = warm.start_python(program, environ, ROOT, nothing)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_compactor_killed_at_any_moment_loses_no_row(home: Loopline, predicted: Path, tmp_path: Path):
    state = home.state("whole")
    lines = predicted.with_name("later.csv").read_text().splitlines()
    for number in range(9):
        part = tmp_path / f"{number}.csv"
        part.write_text("\n".join([lines[0], lines[1 + number].replace("t", f"c{number}-", 1)]) + "\n")
    before = prediction_log(state).parts()
    home("predict", "whole", str(tmp_path), "--id", "tag", "--out", str(predicted.with_name("small.parquet"))).ok()
    assert len(prediction_log(state).parts()) == len(before) + 9
    for delay in (0.0, 0.2):
        with compactor(home) as process:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        assert sum(part.rows for part in prediction_log(state).parts()) == sum(part.rows for part in before) + 9
    with compactor(home) as process:
        deadline = time.monotonic() + 60
        while len(prediction_log(state).parts()) > len(before) + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        process.wait(60)
    assert sum(part.rows for part in prediction_log(state).parts()) == sum(part.rows for part in before) + 9
    assert len(prediction_log(state).parts()) <= len(before) + 1


@pytest.mark.wide
def test_served_answers_and_their_labels_show_up_in_what_monitoring_reads(learner: Loopline, penguins):
    """Nobody moves them but monitoring: the server has just begun, and is killed."""
    before = learner("monitor", "whole", "--json").ok().json
    numbers = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
    rows = [{**row, **{name: number(row[name]) for name in numbers}} for row in penguins[1][:40]]
    ids = [f"served-{row.pop('tag')}" for row in rows]
    truth = [row.pop("species") for row in rows]
    labels = [{"id": one, "species": species} for one, species in zip(ids, truth, strict=True)]
    port = ports.any_free([])
    server = learner.start("serve", "whole", "--port", str(port))
    try:
        server.wait_until(lambda: post(port, "/ping"))
        told = post(port, "/invocations", {"dataframe_records": rows, "ids": ids})
        assert told["ids"] == ids
        token = token_path(Workspace(learner.home), SERVE_TOKEN).read_text().strip()
        taken = post(port, "/feedback", labels[:30], Authorization=f"Bearer {token}")
        assert taken == {
            "accepted": 30,
            "empty": 0,
            "model": "whole",
        }
    finally:
        server.kill()
    found = learner("monitor", "whole", "--json").ok().json
    assert found["num_predictions"] == before["num_predictions"] + 40
    assert found["num_labels"] == before["num_labels"] + 30
    served = {}
    for table in joined(learner.state("whole"), columns=["origin", "input.island", "raw.year"]):
        served |= {row["id"]: row for row in table.to_pylist() if row["origin"] == "serve"}
    assert [served[one]["label"] for one in ids] == [*truth[:30], *[None] * 10]
    assert [served[one]["input.island"] for one in ids] == [row["island"] for row in rows]
    assert str(served[ids[0]]["raw.year"]) == rows[0]["year"], "what is no input is kept as it was given"


def number(text: str) -> float | None:
    return None if text in ("", "NA") else float(text)


def post(port: int, path: str, body: object = None, **headers: str) -> Any:
    """The answer as JSON; None while the server does not listen."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        kind = {"Content-Type": "application/json", **headers}
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), kind)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status in (200, 503), content
        return content if answer.status == 200 else None
    return None
