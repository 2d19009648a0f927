"""Other models and other places: own code, trees, regression, a project elsewhere, a workspace in git."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import SPEC
from tests.running import Loopline

pytestmark = pytest.mark.e2e

QUICK = ("-s", "search.trials=0", "-s", "train.epochs=3")
SMALL_TEXT = (*QUICK, "-s", "model.arguments={width: 32, layers: 1}", "-s", "train.epochs_per_pass=1", "--json")
TREES = ("run", "wood", "-s", "search.trials=1", "--json")
NOUNS, VERBS = ("captain", "heroine", "baronet", "aunt", "curate"), ("admir", "visit", "answer", "persuad")
OWN = """\
import torch


class Net(torch.nn.Module):
    def __init__(self, num_numeric, cardinalities, num_outputs, width=16):
        super().__init__()
        self.embed = torch.nn.ModuleList(torch.nn.Embedding(size, 3) for size in cardinalities)
        first = torch.nn.Linear(num_numeric + 3 * len(cardinalities), width)
        self.layers = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(width, num_outputs))

    def forward(self, numeric, categorical):
        embedded = [embed(categorical[:, at]) for at, embed in enumerate(self.embed)]
        return self.layers(torch.cat([numeric, *embedded], dim=1))


def bill_area(frame):
    return frame.assign(bill_area=frame.bill_length_mm * frame.bill_depth_mm)


def balanced(target, prediction):
    hits = prediction.argmax(axis=1) == target
    return float(sum(hits[target == one].mean() for one in set(target)) / len(set(target)))
"""


@pytest.fixture(scope="module")
def home(make_home) -> Loopline:
    """A workspace that is a git repository."""
    made = make_home("kinds")
    subprocess.run(["git", "init", "-q", str(made.home)], check=True)
    return made


@pytest.mark.wide
def test_own_net_features_and_metric_and_trees_at_once_from_a_fresh_workspace(home: Loopline):
    """Two projects whose first loops begin at the same time."""
    spec = (
        SPEC.replace("metric: accuracy", "metric: './own.py:balanced', direction: maximize")
        .replace("  split:", "  features: {make: './own.py:bill_area'}\n  split:")
        .replace("net: mlp, arguments: {layers: 1, hidden: 16}", "net: './own.py:Net', arguments: {width: 24}")
    )
    folder = home.project("own", spec, {"own.py": OWN})
    home.project("wood", SPEC.replace("net: mlp, arguments: {layers: 1, hidden: 16}", "net: trees"))
    both = home.start("run", "own", *QUICK, "-s", "train.epochs=8", "--json"), home.start(*TREES)
    told, wood = (run.ended().ok().json for run in both)
    assert set(home.runs().values()) == {"FINISHED"}
    assert wood["value"] > 0.9
    state = home.home / ".loopline" / "projects" / "wood"
    card = (state / "card.html").read_text()
    assert re.search(r"fitted again.*?on \d+ training and validation examples, \d+ rounds", card, re.DOTALL)
    assert "of the first fit, on the training examples alone" in card
    (trial,) = (state / "work" / "search").glob("*/trials/*")
    assert [path.name for path in state.glob("work/train/*/first-fit")] == ["first-fit"]
    assert not (trial / "first-fit").exists(), "a trial is not fitted again"
    assert (home.aliases("wood"), home.versions("own")) == ({"champion": 1}, [1])
    assert told["metric"].endswith("balanced")
    assert told["value"] > 0.7
    assert {item["state"] for item in home("plan", "own", *QUICK, "-s", "train.epochs=8", "--json").json} == {"done"}
    predicted = home("predict", "own", str(folder / "penguins.csv"), "--json").ok().json
    assert predicted["rows"] == predicted["logged"] == 344
    assert any("own.py:bill_area: called on pieces" in note for note in predicted["notes"])
    (folder / "own.py").write_text(OWN.replace("bill_length_mm * frame", "bill_length_mm / frame"))
    told = {item["step"]: item for item in home("plan", "own", *QUICK, "-s", "train.epochs=8", "--json").json}
    assert told["ingest"]["state"] == "done"
    assert any("own.py" in reason for reason in told["prepare"]["reasons"])


@pytest.mark.wide  # the rules of weight and the unit tests of searches and ensembles hold its parts
def test_the_search_chooses_a_net_and_every_later_step_takes_it(home: Loopline):
    home.project("choice", SPEC.replace("model: {net: mlp, arguments: {layers: 1, hidden: 16}}", "model: {net: auto}"))
    quick = ("-s", "search.trials=5", "-s", "train.epochs=5", "--json")
    told = home("run", "choice", *quick).ok().json
    (trials,) = [json.loads(path.read_text()) for path in home.state("choice").rglob("trials.json")]
    nets = [trial["params"]["model.net"] for trial in trials]
    assert nets == ["trees", "linear", "mlp", "trees", "trees"]
    starts = [(trial["params"]["model.num_leaves"], trial["params"]["model.extra_trees"]) for trial in trials[3:]]
    assert starts == [(7, False), (31, True)]
    results = [json.loads(path.read_text()) for path in (home.state("choice") / "work" / "train").rglob("result.json")]
    fits = [result["environment"].get("chosen", {}) for result in results]
    assert any("trial" in chosen.get("fit", "") for chosen in fits), "what a trial has trained is not trained again"
    assert told["value"] > 0.9
    assert home.aliases("choice") == {"champion": 1}
    card = (home.state("choice") / "card.html").read_text()
    assert all(family in card for family in ("Families", "trees", "linear", "mlp", "chosen: "))
    joined = re.search(r"of an ensemble with .*?(\S+) on all training and validation rows", card)
    assert joined is not None
    assert f"search       {joined[1]}, model.net: ensemble" in home("status", "choice").ok().out, "not the best trial's"
    assert not home("run", "choice", *quick).ok().json["ran"]
    (best,) = (home.state("choice") / "work" / "search").glob("*/best.json")
    found = best.read_bytes()
    best.unlink()
    shutil.rmtree(best.with_name("trials"))  # as on another machine, which has the study alone
    assert "not on this machine: trained again" in home("run", "choice", *quick).ok().err
    assert best.read_bytes() == found
    members = "[{weight: 0.75, model.net: trees, model.rounds: 20}, {weight: 0.25, model.net: linear}]"
    settings = f"search.settings={{model.net: ensemble, model.members: {members}}}"
    told = home("run", "choice", "-s", "search.trials=0", "-s", settings, "--json").json  # better or not
    assert told["value"] > 0.9
    assert told["params"]["trees.weight"] == 0.75
    card = (home.state("choice") / "card.html").read_text()
    assert "ensemble of trees (75%), linear (25%)" in card
    assert "Learning curves: linear" in card
    weights = {"trees.trees.txt", "linear.weights.safetensors"}
    asked = "select key, value from model_version_tags where name = 'choice' and version = ?"
    tags = dict(home.query(asked, told["version"]))
    assert weights <= json.loads(tags["loopline.files"]).keys()
    assert tags["loopline.variants"] == "[]", "its members know the rows on which they would be measured"
    refused = home("run", "choice", "-s", "model.net=ensemble")
    assert (refused.code, "say auto" in refused.err) == (2, True)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("books") / "book.txt"
    path.write_text("".join(f"The {a} {b}ed the {a}; and why not?\n" for a in NOUNS for b in VERBS for _ in range(9)))
    return path


def test_a_project_of_a_text_begins_with_the_text_alone(home: Loopline, book: Path):
    refused = home("new", "novel", "--from", str(book), "--target", "text")
    assert refused.code == 2
    assert "every character is predicted" in refused.err
    home("new", "novel", "--from", str(book)).ok()
    home("stage", "ingest", "novel").ok()
    home("stage", "prepare", "novel").ok()


@pytest.mark.wide  # the golden specs train, export and score a language model
def test_a_text_becomes_a_promoted_language_model(home: Loopline, book: Path):
    if not (home.home / "projects" / "novel").exists():
        home("new", "novel", "--from", str(book)).ok()
    told = home("run", "novel", *SMALL_TEXT).ok().json
    assert told["metric"] == "bits_per_char"
    assert told["value"] < 2.5 < told["baseline_value"]
    assert 0 < told["references"]["bz2"] < 2.5
    assert {"val_loss", "val_bits_per_char", "test_bits_per_char"} <= told["metrics"].keys()
    assert home.aliases("novel") == {"champion": 1}
    assert "At temperature 0.8" in (home.state("novel") / "card.html").read_text()


@pytest.mark.wide
def test_a_champion_of_texts_predicts_and_is_read_by_its_own_alphabet_again(home: Loopline, book: Path):
    told = home("run", "novel", *SMALL_TEXT).ok().json
    assert not told["ran"]
    predicted = home("predict", "novel", str(book), "--json").ok().json
    assert predicted["rows"] == predicted["logged"] == 180
    judged = home("run", "novel", *SMALL_TEXT, "-s", "train.epochs=1").json
    assert judged["champion_value"] == pytest.approx(told["value"])


@pytest.mark.wide
def test_regression_in_a_project_outside_the_workspace(home: Loopline, tmp_path_factory: pytest.TempPathFactory):
    away = Loopline(tmp_path_factory.mktemp("away"))
    spec = SPEC.replace("target: species", "target: body_mass_g").replace("by: stratified", "by: random")
    folder = away.project("mass", spec.replace("metric: accuracy, good_enough: 0.5", "metric: rmse, good_enough: 900"))
    moved = folder.rename(away.home / "mass")
    told = home("run", str(moved / "project.yaml"), *QUICK, "-s", "train.epochs=12", "--json").ok().json
    assert told["value"] < told["baseline_value"]
    assert home.aliases("mass") == {"champion": 1}
    assert (moved / "dvc.lock").is_file()
    again = home("run", str(moved), *QUICK, "-s", "train.epochs=12", "--json", cwd=away.home).ok().json
    assert not again["ran"]
    assert "up to date" in home.dvc("status", cwd=moved).ok().out


def test_a_stage_alone_and_then_the_loop(home: Loopline):
    home.project("alone", SPEC)
    home("stage", "ingest", "alone").ok()
    home("stage", "prepare", "alone").ok()
    told = {item["step"]: item["state"] for item in home("plan", "alone", "--json").ok().json}
    assert [step for step, state in told.items() if state == "done"] == ["ingest", "validate-raw", "prepare"]
    assert home.runs().keys().isdisjoint({"alone"})


@pytest.mark.wide  # `tests/integration/test_dvc.py` looks at a loop's commit in a git clone
def test_git_keeps_the_papers_and_dvc_the_bytes(home: Loopline):
    status = home.dvc("status").ok().out
    assert "up to date" in status, status
    told = subprocess.run(
        ["git", "-C", str(home.home), "status", "--porcelain", "--untracked-files=all"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    files = {line[3:] for line in told.splitlines()}
    assert {"dvc.yaml", "dvc.lock", ".dvcignore"} <= files
    bytes_ = [file for file in files if ("/data/" in file and not file.endswith("/.gitignore"))]
    assert [file for file in bytes_ if "alone" not in file] == [], "only `alone` has not come to DVC"
    assert not [file for file in files if file.startswith(".loopline")]
