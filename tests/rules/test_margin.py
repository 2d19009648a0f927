"""A margin of non-inferiority is lost once, not with each promotion: live, in a backtest, after a clean-up.

Twenty challengers, each a little worse than the one before, end within one margin of the best; a challenger as good as
the best is still promoted. Before, the chain lost .08 of ROC AUC at a margin of .04, in 15 of 16 simulations.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.stored_predictions import PREDICTIONS_FILE, StoredPredictions
from models.metrics.metrics import METRICS
from models.project_spec.judge import Judge
from models.serving.registry import BEST, RegisteredVersion
from tasks.loop.champion_parts import Rival
from tasks.mlflow.registry import Announcer, Registry
from tasks.steps import rivals

AUC, SIGNAL = METRICS["roc_auc"], 1.2


def true_auc(signal):
    return float(ndtr(signal / np.sqrt(2)))


@dataclass
class Model:
    """A model that sees the target through noise, 60 % of which is common to all models."""

    signal: float
    rows: object = None
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass
class Chain:
    """The promotions of a chain of challengers: how many, the true loss at the end, and the mean margin."""

    promoted: int
    lost: float
    margin: float


def chain(seed, signals, num=500, fresh=True, margin=None, resamples=100):
    """Judge challengers one after the other; `fresh`: each on new test rows."""
    rng, rules = np.random.default_rng(seed), Judge(resamples=resamples, margin=margin)
    rows, champion, best, promoted, margins = None, None, None, 0, []

    def predicted(model):
        if model is not None and model.rows is not rows:
            model.rows = rows
            model.scores = ndtr(rows[0] * model.signal + 0.8 * rows[1] + 0.6 * rng.normal(size=num))
        return None if model is None else model.scores

    for number, signal in enumerate(signals):
        if fresh or rows is None:
            rows = ((rng.random(num) < 0.3).astype(np.int64), rng.normal(size=num))
        ours = Model(signal)
        evidence = Evidence(
            task="binary", target=rows[0], challenger=predicted(ours), champion=predicted(champion),
            best=predicted(best) if best is not champion else None, best_id="1",
        )  # fmt: skip
        verdict = judge(evidence, rules, AUC, seed=number)
        margins += [verdict.margin] * (verdict.champion is not None)
        if verdict.promoted:
            promoted, champion, best = promoted + 1, ours, ours if verdict.is_best else best
    return Chain(promoted, true_auc(max(signals)) - true_auc(champion.signal), float(np.mean(margins)))


def falling(step, num=20):
    return [SIGNAL - step * number for number in range(num + 1)]


@pytest.mark.parametrize("margin", [None, 0.05])
def test_twenty_challengers_each_a_little_worse_end_within_one_margin(margin):
    for fresh, step in ((True, 0.03), (False, 0.05)):
        found = chain(3, falling(step), fresh=fresh, margin=margin)
        assert found.lost <= (margin or found.margin)


@pytest.mark.soak
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("step", [0.01, 0.02, 0.04])
def test_at_most_5_of_100_chains_end_beyond_one_margin(fresh, step):
    chains = [chain(seed, falling(step), 1000, fresh) for seed in range(60)]
    assert sum(each.lost > each.margin for each in chains) <= 3


@pytest.mark.soak
def test_a_rise_that_is_not_shown_and_a_fall_after_it_end_within_one_margin_and_a_half():
    signals = [SIGNAL, SIGNAL + 0.05, SIGNAL + 0.1, *(SIGNAL + 0.1 - 0.02 * number for number in range(18))]
    chains = [chain(seed, signals, 1000) for seed in range(60)]
    assert sum(each.lost > 1.5 * each.margin for each in chains) <= 3


@pytest.mark.parametrize(
    ("chains", "least"),
    [(1, 0.75), pytest.param(40, 0.8, marks=pytest.mark.soak)],
)
def test_a_challenger_as_good_as_the_best_is_promoted_in_80_of_100_loops(chains, least):
    found = [chain(seed, [SIGNAL] * 21, resamples=400) for seed in range(chains)]
    assert np.mean([each.promoted / 21 for each in found]) >= least


# ---- the rule in a loop: whom it is compared with, on which predictions


def lookup(tmp_path, monkeypatch, stored, cannot_read=False, is_reversed=False):
    """Return the best champion's predictions of three test rows, `stored` with its version."""
    from models.errors import DataError

    version = RegisteredVersion(number="1", tags={"loopline.weights_sha256": "w" * 64})
    stored.save(tmp_path / PREDICTIONS_FILE)
    preparation = SimpleNamespace(
        task="binary",
        target=SimpleNamespace(predicts_same=lambda _: True, is_reversed=lambda _: is_reversed),
        class_head=SimpleNamespace(decision=0.4),
        characters=None,
        window=None,
    )

    def predictions(*_):
        if cannot_read:
            raise DataError("no column 'x'")
        return np.array([0.7, 0.8, 0.9])

    monkeypatch.setattr(rivals.registry_reader, "named", lambda *_: version)
    monkeypatch.setattr(rivals, "cached_copy", lambda *_, **__: SimpleNamespace(folder=tmp_path))
    monkeypatch.setattr(rivals, "predictions", predictions)
    monkeypatch.setattr("models.data.preparation.Preparation.load", lambda _: preparation)
    monkeypatch.setattr("models.judge.held_out.example_rows", lambda *_: np.array([5, 6, 7], dtype=np.uint64))
    notes = []
    loop = SimpleNamespace(
        workspace=SimpleNamespace(state=None),
        spec=SimpleNamespace(name="tiny"),
        report=SimpleNamespace(note=notes.append),
    )
    rows = rivals.FrozenRows(tmp_path, tmp_path, "now")
    rival = Rival("2:" + "v" * 16, "2", version.identity)
    return rivals.best_champion(loop, rows, rival, preparation, np.array([0, 1, 1])), notes


def stored(prepared, rows=(5, 6, 7), target=(0, 1, 1)):
    return StoredPredictions(prepared, np.array(rows, dtype=np.uint64), np.array(target), np.array([0.1, 0.2, 0.3]))


def test_its_stored_predictions_stand_where_the_data_are_the_same(tmp_path, monkeypatch):
    found, notes = lookup(tmp_path, monkeypatch, stored("now"))
    assert (found.prediction.tolist(), found.decision, notes) == ([0.1, 0.2, 0.3], 0.4, [])


def test_its_graph_predicts_other_rows(tmp_path, monkeypatch):
    found, _ = lookup(tmp_path, monkeypatch, stored("before"))
    assert (found.prediction.tolist(), found.known) == ([0.7, 0.8, 0.9], None)
    other, _ = lookup(tmp_path, monkeypatch, stored("before"), is_reversed=True)
    assert (other.prediction.tolist(), other.decision) == (pytest.approx([0.3, 0.2, 0.1]), 0.6)


def test_its_stored_predictions_of_shared_rows_count_where_its_graph_cannot_read_the_data(tmp_path, monkeypatch):
    found, notes = lookup(tmp_path, monkeypatch, stored("before", rows=(7, 4, 5), target=(1, 1, 0)), cannot_read=True)
    assert (found.prediction.tolist(), found.known.tolist(), notes) == ([0.3, 0, 0.1], [False, True, False], [])
    other, notes = lookup(tmp_path, monkeypatch, stored("before", rows=(7, 4, 5), target=(0, 1, 0)), cannot_read=True)
    assert other.prediction is None
    assert notes == ["the best champion so far (version 1) cannot read this data (no column 'x')"]


@pytest.mark.parametrize(("loop_id", "is_reference"), [("", True), ("l", False)])
def test_a_version_that_a_person_promotes_is_the_best_champion_so_far(workspace, loop_id, is_reference):
    """Whoever takes another model on purpose need not overrule each later verdict; a rollback to it keeps that."""
    registry = Registry(workspace, "m", Announcer(lambda *_: None, lambda: None))
    registry.carrier.looking = lambda **_: contextlib.nullcontext()  # MLflow is away
    for version, expected in (("2", None), ("3", "2")):
        registry.promote(version, expected, loop_id=loop_id and f"{loop_id}-{version}")
    registry.rollback()
    served = [move.serving({BEST: "1:a"})[BEST] for move in registry.journal()]
    assert served == ["" if is_reference else "1:a"] * 3


def test_only_the_clean_up_removes_versions_of_a_model():
    """A verdict, the data's identity and predictions lie with a version: every former champion keeps them.

    tests/integration/test_gc.py holds that the clean-up keeps them.
    """
    removals = ("delete_model_version(", "delete_logged_model", "delete_run(", "artifact_files.remove(")
    files = [path for folder in ("models", "tasks", "flows") for path in Path(folder).rglob("*.py")]
    assert len(files) > 300
    removing = [path for path in files if any(name in path.read_text() for name in removals)]
    assert removing == [Path("tasks/mlflow/garbage.py")]
