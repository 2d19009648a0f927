"""The rule of the positive class: `goal.positive` names it, and no figure depends on how the classes are called.

One project has the classes `no` and `yes`, of which the later is positive as it always was. The other has the same
rows, with `fraud` for `yes` and `legit` for `no`, and says `goal.positive: fraud`. All that follows must be equal.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.contest import PREPARED, contest
from models.data.preparation import Preparation
from models.errors import DataError
from models.files import read_json
from models.inference.loaded_model import LoadedModel
from models.judge.verdict import Verdict
from models.project_spec.blocks import Spec
from models.scaffold.table import guess_spec
from models.serving.open_api import prediction_schema
from models.training.spec_check import check_spec
from tasks.steps.card_decision import decision
from tests.goal_jobs import METRICS, answers, fitted, prepared_table
from tests.wide import wide_but

NAMES = {"order": ("no", "yes"), "named": ("legit", "fraud")}
"""(negative, positive) of the project without `goal.positive`, and of that with it."""
GOALS: list[dict[str, Any]] = [
    *({"metric": name} for name, metric in METRICS.items() if "binary" in metric.tasks),
    {"costs": {"false_positive": 1.0, "false_negative": 9.0}},
]

KEPT = [goal for goal in GOALS if goal.get("metric", "costs") in ("costs", "f1", "log_loss", "pr_auc", "roc_auc")]
"""With every change: those of a decision, of probabilities and of an order."""


def columns_of(negative: str, positive: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1200, 3))
    is_positive = x[:, 0] + rng.normal(size=1200) > 1.9
    return {
        "id": np.arange(1200),
        **{f"x{at}": x[:, at] for at in range(3)},
        "region": np.array(["north", "south"])[(x[:, 2] > 0).astype(int)],
        "y": np.where(is_positive, positive, negative),
    }


def prepared_of(place: Path, names: str, goal: dict[str, Any]) -> Any:
    goal = {**goal, "positive": "fraud"} if names == "named" else goal
    blocks = {"goal": goal, "judge": {"slices": ["region"], "resamples": 100}}
    return prepared_table(place, columns_of(*NAMES[names]), data={"id": "id"}, **blocks)


class Project:
    """A finished job with its export, as a backtest lays it out, and what the stages say of it."""

    def __init__(self, place: Path, names: str, goal: dict[str, Any], prepared: Any) -> None:
        self.spec, tensors = prepared
        self.spec = self.spec.model_copy(update={"goal": self.spec.goal.model_validate(goal)})
        self.out = place / names
        self.job = fitted(
            place / f"job-{names}", (self.spec, tensors), "trees", {"rounds": 12, "num_leaves": 4}, epochs=2
        )
        self.out.mkdir()
        self.target, self.prediction, self.preparation, self.record = answers(self.job, self.out)
        (self.out / PREPARED).symlink_to(self.job.prepared)

    def verdict(self, champion: Path | None = None) -> Verdict:
        return contest(self.out, champion, self.spec, self.job.project)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("positive")
    return {names: prepared_of(place / names, names, {}) for names in NAMES}


def _plain(verdict: Verdict) -> dict[str, Any]:
    """All that a verdict says, but for the names of models and what was measured of time and size."""
    loose = {"challenger_id", "champion_id", "challenger_cost", "champion_cost", "positive", "digests"}
    return verdict.model_dump(mode="json", exclude=loose)


@pytest.mark.parametrize("goal", wide_but(GOALS, KEPT), ids=lambda goal: str(goal.get("metric", "costs")))
def test_no_figure_depends_on_the_names_of_the_classes(prepared: dict[str, Any], tmp_path: Path, goal: dict[str, Any]):
    order, named = (Project(tmp_path, names, goal, prepared[names]) for names in NAMES)
    assert order.preparation.target.classes == ["no", "yes"]
    assert named.preparation.target.classes == ["legit", "fraud"]
    np.testing.assert_array_equal(named.target, order.target)
    assert named.target.mean() < 0.2, "class 1 is the rare one"
    np.testing.assert_array_equal(named.prediction, order.prediction)
    assert read_json(named.job.folder / "result.json")["value"] == read_json(order.job.folder / "result.json")["value"]
    assert named.preparation.class_head == order.preparation.class_head
    assert named.record["class_head"] == order.record["class_head"]
    assert _plain(named.verdict()) == _plain(order.verdict())
    assert named.verdict().positive == "fraud"


def test_a_champion_whose_other_class_is_positive_is_judged_as_this_one_is(prepared: dict[str, Any], tmp_path: Path):
    """Its version is of before `goal.positive` was set; the same model is neither better nor worse."""
    goal = {"metric": "f1"}
    named = Project(tmp_path, "named", goal, prepared["named"])
    before = Project(tmp_path / "before", "named", goal, prepared_table_of_before(tmp_path))
    assert before.preparation.target.classes == ["fraud", "legit"]
    verdict = named.verdict(before.out)
    assert verdict.champion is not None
    assert verdict.metrics["roc_auc"]["champion"] == pytest.approx(verdict.metrics["roc_auc"]["challenger"], abs=0.02)
    assert verdict.metrics["pr_auc"]["champion"] == pytest.approx(verdict.metrics["pr_auc"]["challenger"], abs=0.05)
    assert verdict.metrics["log_loss"]["champion"] == pytest.approx(verdict.metrics["log_loss"]["challenger"], abs=0.02)


def prepared_table_of_before(tmp_path: Path) -> Any:
    return prepared_table(tmp_path / "raw-before", columns_of(*NAMES["named"]), data={"id": "id"})


def test_card_and_api_name_the_positive_class(prepared: dict[str, Any], tmp_path: Path):
    named = Project(tmp_path, "named", {"metric": "f1"}, prepared["named"])
    facts = decision(named.record["class_head"], named.preparation, True, "validation rows")
    assert facts["positive class"] == "fraud (goal.positive)"
    assert 0 < facts["threshold of fraud"] < 1
    told = decision(named.record["class_head"], named.preparation, False, "validation rows")["positive class"]
    assert told == "fraud (the later of the two: goal.positive is not set)"
    properties = prediction_schema(LoadedModel("rule", "1", named.out))["properties"]
    assert [name for name, schema in properties.items() if "positive" in schema.get("description", "")] == [
        "probability_fraud"
    ]


def test_new_writes_the_rarer_class_and_says_so(tmp_path: Path):
    import pyarrow.csv

    pyarrow.csv.write_csv(pa.table(columns_of("legit", "fraud")), tmp_path / "rows.csv")
    text = guess_spec(tmp_path / "rows.csv", "rows", "y")
    assert "\ngoal:\n  positive: fraud  # the rarer class, 0." in text


@pytest.mark.parametrize(
    ("data", "goal", "message"),
    [
        ({"task": "multiclass"}, {}, "the task is multiclass"),
        ({"task": "regression"}, {}, "the task is regression"),
        ({"quantiles": [0.1, 0.9]}, {}, "the task is quantile"),
        ({"target": ["y", "z"]}, {}, "the task is multilabel"),
        ({}, {"metric": "mae"}, "the task is regression"),
    ],
)
def test_a_positive_class_of_no_two_classes_is_refused_with_the_spec(
    tmp_path: Path, data: dict[str, Any], goal: dict[str, Any], message: str
):
    blocks = {"data": {"source": "rows.csv", "target": "y", **data}, "goal": {"positive": "fraud", **goal}}
    with pytest.raises(DataError, match=f"goal.positive: got 'fraud', but {message}"):
        check_spec(Spec.model_validate({"name": "rule", **blocks}), tmp_path)


def test_a_class_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path):
    with pytest.raises(DataError, match=r"got 'Fraud', expected one of the classes of 'y', 'fraud' or 'legit'"):
        prepared_table(tmp_path / "raw", columns_of("legit", "fraud"), data={"id": "id"}, goal={"positive": "Fraud"})


@pytest.mark.parametrize(("values", "positive"), [([0, 1], 0), ([False, True], False), ([0.0, 1.0], 0), ([2, 10], "2")])
def test_numbers_and_booleans_are_named_as_yaml_reads_them(tmp_path: Path, values: list[Any], positive: Any):
    columns = {"x": np.random.default_rng(0).normal(size=200), "y": [values[at % 2] for at in range(200)]}
    prepared_table(tmp_path / "raw", columns, goal={"positive": positive})
    assert Preparation.load(tmp_path / "raw/prepared").target.positive == str(positive).lower()
