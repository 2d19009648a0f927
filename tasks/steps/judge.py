"""Judge: compares challenger, champion and trivial baseline on the same frozen test examples and draws the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import KNOWN_ROWS_FILE, ROWS_FILE, Preparation
from models.errors import DataError
from models.files import write_bytes, write_text
from models.identity.equal_share import EqualRows
from models.inference.portable import MODEL_FILE
from models.judge.decide import judge as decide
from models.judge.evidence import Evidence
from models.judge.slices import without_rare
from models.judge.verdict import Parity, Verdict
from models.kinds.data_kind import PerDataKind
from models.kinds.task import TASKS
from models.metrics.classification import missed_classes
from models.metrics.language import bz2_bits_per_char
from models.metrics.metrics import metric_of
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.readable import as_shown
from models.report.verdict_figures import verdict_figures
from models.validation.data_profile import FEWEST_ALIKE
from tasks.host.workspace import Project
from tasks.loop.champion_parts import Rival
from tasks.loop.loop import Inputs, Loop, Reporter, StepResult
from tasks.state.outbox import LOOP_RUN, Outbox
from tasks.steps.importances import importances
from tasks.steps.rivals import FrozenRows, best_champion, champion, predictions, serving_cost

if TYPE_CHECKING:
    from models.project_spec.blocks import Spec

SHOWN = 5
"""Most classes that a warning names."""
VERDICT_FILE = "verdict.json"


def judge(loop: Loop) -> tuple[StepRecord, bool]:
    """Compare the exported challenger with the champion as it is served; the verdict is the step's output.

    Raises:
        DataError: The predictions cannot be compared.
        StoreError: The champion's files cannot be fetched, or are not those that were registered.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        rival = inputs.external("champion")
        loop.make_room(inputs["prepare"].file(ROWS_FILE))
        whole, is_known = _evidence(loop, inputs, rival)
        evidence, num_known = _without_known(loop.report, whole, is_known)
        verdict = _verdict(loop.spec, loop.project, evidence).model_copy(update={"num_known": num_known})
        write_text(folder / VERDICT_FILE, verdict.model_dump_json(indent=1) + "\n")
        missed = _missed_classes(inputs, evidence, loop.spec)
        if missed:
            loop.report.note(f"judge: {missed}")
        _draw(loop.outbox, inputs["prepare"].folder, folder, verdict, evidence)
        result = {
            "rival": rival.identity,
            "champion": rival.champion,
            "judged_best": rival.best,
            "best": "" if verdict.is_best else (rival.best if verdict.best else "") or rival.identity,
            "decision": verdict.decision,
            "reasons": verdict.reasons,
            "metric": verdict.metric,
            "value": verdict.challenger.value,
            "champion_value": verdict.champion.value if verdict.champion else None,
            "baseline_value": verdict.baseline.value if verdict.baseline else None,
            "references": verdict.references,
            "warnings": [missed] * bool(missed),
            "challenger_cost": verdict.challenger_cost.model_dump(),
            "metrics": {name: values.get("challenger") for name, values in verdict.metrics.items()},
            "importances": measured.model_dump()
            if (measured := importances(inputs, loop.spec, loop.project.folder))
            else None,
        }
        papers = [_write_known_rows(inputs, folder), _write_predictions(inputs, folder, whole)]
        papers.append(_write_worst(loop.spec, inputs, folder, whole))
        return StepResult([folder / VERDICT_FILE, *papers], result)

    record, was_done = loop.carry_out("judge", act)
    path = loop.place(record) / VERDICT_FILE  # of an earlier loop, if its verdict counts: this run shows it too
    _log(loop.outbox, Verdict.model_validate_json(path.read_text()), record.finished)
    return record, was_done


def _missed_classes(inputs: Inputs, evidence: Evidence, spec: Spec) -> str:
    """Return a warning of classes that the challenger never predicts; empty if there are none."""
    if not TASKS[evidence.task].has_classes:
        return ""
    classes = Preparation.load(inputs["prepare"].folder).target.class_names
    missed = never_predicted(evidence)
    if not len(missed):
        return ""
    names = ", ".join(classes[index] for index in missed[:SHOWN]) + ("" if len(missed) <= SHOWN else ", ...")
    return (
        f"{len(missed)} of {len(classes)} classes occur in the test rows but are never predicted: {names}; "
        f"{weighing(spec)} weighs them more"
    )


def never_predicted(evidence: Evidence) -> np.ndarray:
    """Return the classes (class,) of test rows that weigh anything and that the challenger never predicts."""
    counted = evidence.weighing
    return missed_classes(counted.target, counted.decided)


def weighing(spec: Spec) -> str:
    """Return what weighs rare classes more than a spec does: never what it has already."""
    cures = ["train.class_weights: balanced"] * (spec.train.class_weights != "balanced")
    cures += ["a goal such as f1 or log_loss"] * (spec.goal.metric not in ("f1", "log_loss"))
    return ", or ".join([*cures, "a larger share of their rows in the source"][:2])


def class_rows(prepared: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the names and the training rows of the classes as fields of the evidence; empty where rows have no one."""
    from models.data import feeds
    from models.data.weights import weighing_examples

    target = feeds.targets(prepared, "train") if names else None
    if target is None or target.ndim > 1:
        return {}
    counted = target[weighing_examples(prepared, "train", len(target))].astype(np.int64)
    return {"class_names": names, "class_rows": np.bincount(counted, minlength=len(names)).tolist()}


def reasons_to_wait(rival: Rival, prepared: Path, preparation: Preparation, equal: EqualRows | None) -> dict[str, Any]:
    """Return the evidence for which a first model waits for a person; none of a model that is the champion by now.

    The rows are read again for the columns that alone predict the target: validation's own result would judge the model
    anew when only an expectation changed.
    """
    import pyarrow.parquet as pq

    from models.data.prepared_rows import spread_rows
    from models.validation.single_predictors import MOST_ROWS, single_predictors

    if rival.is_let_through:
        return {}
    if rival.identity:
        return {"copies": equal.copies if equal else 0.0, "single_predictors": {}}
    path = prepared / ROWS_FILE
    rows = spread_rows(path, pq.read_schema(path).names, MOST_ROWS)
    return {"copies": equal.copies if equal else 0.0, "single_predictors": single_predictors(rows, preparation)}


def _write_known_rows(inputs: Inputs, folder: Path) -> Path:
    """Write the rows that the challenger knows; they are stored with its version, for when it is the champion."""
    from models.judge.held_out import known_rows

    prepared = inputs["prepare"].folder
    np.save(folder / KNOWN_ROWS_FILE, known_rows(prepared, Preparation.load(prepared)), allow_pickle=False)
    return folder / KNOWN_ROWS_FILE


def _verdict(spec: Spec, project: Project, evidence: Evidence) -> Verdict:
    goal = spec.goal
    metric = metric_of(goal, evidence, project.folder)
    return decide(
        evidence,
        spec.judge,
        metric,
        goal.good_enough,
        spec.serve.max_latency_ms,
        spec.train.seed,
    )


def _write_predictions(inputs: Inputs, folder: Path, evidence: Evidence) -> Path:
    """Write the challenger's predictions; they are stored with its version, for when it is the best champion so far."""
    from models.judge.held_out import example_rows
    from models.judge.stored_predictions import PREDICTIONS_FILE, StoredPredictions

    prepared = inputs["prepare"].folder
    rows = example_rows(prepared, Preparation.load(prepared))
    stored = StoredPredictions(inputs["prepare"].digest, rows, evidence.target, evidence.challenger)
    stored.save(folder / PREDICTIONS_FILE)
    return folder / PREDICTIONS_FILE


def _write_worst(spec: Spec, inputs: Inputs, folder: Path, evidence: Evidence) -> Path:
    """Write the test rows on which the challenger is furthest off; they are stored with its version, for its page."""
    from models.judge.worst_examples import worst_examples
    from models.judge.worst_rows import WORST_FILE, WorstExamples

    prepared = inputs["prepare"].folder
    worst = as_shown(
        worst_examples(prepared, Preparation.load(prepared), evidence), spec.data.show_rows, WorstExamples.without_rows
    )
    write_text(folder / WORST_FILE, worst.model_dump_json(exclude_defaults=True) + "\n")
    return folder / WORST_FILE


def _evidence(loop: Loop, inputs: Inputs, rival: Rival) -> tuple[Evidence, np.ndarray | None]:
    """Return the evidence on all test rows, and which of them the champion knows; None if it has no such record."""
    from models.data import feeds
    from models.data.weights import weights_of
    from models.judge.held_out import baseline_of, with_clusters

    prepared, exported = inputs["prepare"].folder, inputs["export"]
    preparation, equal = Preparation.load(prepared), inputs["prepare"].result["equal_rows"]
    graph = exported.file(MODEL_FILE)
    rows = FrozenRows(prepared, inputs["ingest"].file("raw.parquet"), inputs["prepare"].digest)
    target = feeds.targets(prepared, "test")
    against = champion(loop, rows, rival, preparation)
    best = best_champion(loop, rows, rival, preparation, target)
    baseline = baseline_of(prepared, preparation, target, loop.spec.goal.reference or "mae")
    evidence = Evidence(
        task=preparation.task,
        target=target,
        thresholds={
            "challenger": Preparation.load(exported.folder).class_head.decision,
            "champion": against.decision,
            "best": best.decision,
            "baseline": baseline.threshold,
        },
        challenger=predictions(rows, graph, preparation),
        champion=against.prediction,
        best=best.prediction,
        best_counts=None if best.known is None else ~best.known,
        best_id=rival.best.partition(":")[0] or None,
        baseline=baseline.prediction,
        weights=weights_of(prepared, "test"),
        baseline_name=baseline.name,
        references=_references(loop.spec, loop.project, prepared, preparation, baseline.name),
        slices=_slices(loop.spec, prepared),
        challenger_id=exported.digest,
        champion_id=rival.identity.partition(":")[0] if against.prediction is not None else None,
        challenger_cost=serving_cost(rows, graph, preparation),
        champion_cost=against.cost,
        parity=Parity.model_validate(
            {key: exported.result[key] for key in Parity.model_fields if key in exported.result}
        ),
        outputs=preparation.target.outputs,
        positive=preparation.target.positive,
        **class_rows(prepared, preparation.target.class_names),
        **reasons_to_wait(rival, prepared, preparation, EqualRows.model_validate(equal) if equal else None),
    )
    return with_clusters(evidence, prepared, preparation, loop.spec), against.known


def _slices(spec: Spec, prepared: Path) -> dict[str, np.ndarray]:
    from models.data.feeds import slice_values

    slices = slice_values(prepared, "test", spec.judge.slices)
    return as_shown(slices, spec.data.show_rows, lambda slices: without_rare(slices, FEWEST_ALIKE))


def _without_known(report: Reporter, evidence: Evidence, is_known: np.ndarray | None) -> tuple[Evidence, int]:
    """Return the evidence without the test rows that the champion knows, and the number of these rows."""
    if is_known is None or not is_known.any():
        return evidence, 0
    note = (
        f"{is_known.sum():,} of {len(is_known):,} test rows are, or may be, among those that the champion was "
        "trained on"
    )
    if is_known.all():
        raise DataError(
            f"judge: {note}, and nothing is left to compare on: put data.split back as it was, or promote by hand"
        )
    report.note(f"judge: {note}: they do not count")
    return evidence.only(~is_known), int(is_known.sum())


def _references(
    spec: Spec, project: Project, prepared: Path, preparation: Preparation, baseline: str
) -> dict[str, float]:
    """Return a compressor's bits per character for a text, the other naive forecasts of series, else nothing."""
    return _REFERENCES[preparation.kind](spec, project, prepared, preparation, baseline)


def _other_forecasts(
    spec: Spec, project: Project, prepared: Path, preparation: Preparation, baseline: str
) -> dict[str, float]:
    from models.data.feeds import targets
    from models.judge.held_out import naive_forecasts

    metric, target = metric_of(spec.goal, preparation, project.folder), targets(prepared, "test")
    forecasts = naive_forecasts(prepared, preparation, metric.name)
    forecasts_beside = [forecast for forecast in forecasts if forecast.name != baseline]
    return {forecast.name: float(metric.value(target, forecast.prediction)) for forecast in forecasts_beside}


def _compressor(
    spec: Spec, project: Project, prepared: Path, preparation: Preparation, baseline: str
) -> dict[str, float]:
    from models.data.text import text_of

    characters = preparation.required_characters
    train, test = (text_of(prepared, split, characters) for split in ("train", "test"))
    return {"bz2": bz2_bits_per_char(train, test)}


def _no_reference(
    spec: Spec, project: Project, prepared: Path, preparation: Preparation, baseline: str
) -> dict[str, float]:
    return {}


_REFERENCES: PerDataKind[Callable[[Spec, Project, Path, Preparation, str], dict[str, float]]] = {
    "table": _no_reference,
    "image": _no_reference,
    "series": _other_forecasts,
    "text": _compressor,
}


def _draw(outbox: Outbox, prepared: Path, folder: Path, verdict: Verdict, evidence: Evidence) -> None:
    """Draw the verdict's figures, for MLflow and for the card."""
    target = Preparation.load(prepared).target
    for name, content in verdict_figures(evidence, verdict, target).items():
        path = folder / "figures" / f"{name}.svg"
        write_bytes(path, content)
        outbox.artifact(LOOP_RUN, path, "verdict")


def _plain(name: str) -> str:
    """Return a name that MLflow takes as part of a metric's name."""
    return "".join(character if character.isalnum() or character in "_-. " else "_" for character in name)


def _log(outbox: Outbox, verdict: Verdict, at: float) -> None:
    def named(model: str) -> dict[str, Any]:
        prefix = "test_" if model == "challenger" else f"test_{model}_"
        return {
            prefix + name: values[model] for name, values in verdict.metrics.items() if values.get(model) is not None
        }

    outbox.metrics(LOOP_RUN, named("challenger"), at=at, measured_on="test")
    for model in ("champion", "baseline"):
        outbox.metrics(LOOP_RUN, named(model), at=at)
    references = {f"test_{name}_{verdict.metric}": value for name, value in verdict.references.items()}
    for output in verdict.outputs:
        scores = {f"test_{_plain(output.name)}_{_plain(name)}": value for name, value in output.challenger.items()}
        references |= scores
    outbox.metrics(LOOP_RUN, {name: value for name, value in references.items() if value is not None}, at=at)
    outbox.tags(LOOP_RUN, {"loopline.decision": verdict.decision, "loopline.verdict": verdict.summary})
