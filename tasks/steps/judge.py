"""Judge: compares challenger, champion and trivial baseline on the same frozen test examples and draws the figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.errors import DataError
from models.files import write_bytes, write_text
from models.judge.verdict import Parity, ServingCost, Verdict
from models.metrics.metrics import metric_of
from models.pipeline.records import StepRecord
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.mlflow.model_cache import cached_version
from tasks.state.outbox import LOOP_RUN

if TYPE_CHECKING:
    import numpy as np

    from models.data.feeds import Feed
    from models.data.preparation import Preparation, TargetEncoding
    from models.judge.evidence import Evidence

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
        rival, champion = inputs.external("champion")
        evidence, num_known = _evidence(loop, inputs, rival)
        verdict = _verdict(loop, evidence).model_copy(update={"num_known": num_known})
        write_text(folder / VERDICT_FILE, verdict.model_dump_json(indent=1) + "\n")
        _log(loop, verdict)
        missed = _missed_classes(inputs, evidence)
        if missed:
            loop.report.note(f"judge: {missed}")
        _draw(loop, inputs["prepare"].folder, folder, verdict, evidence)
        result = {
            "rival": rival,
            "champion": champion,
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
        }
        return StepResult([folder / VERDICT_FILE, _write_known_rows(inputs, folder)], result)

    return loop.carry_out("judge", act)


def _missed_classes(inputs: Inputs, evidence: Evidence) -> str:
    """Return a warning of classes that the challenger never predicts; empty if there are none."""
    from models.data.preparation import Preparation
    from models.metrics.classification import missed_classes

    classes = Preparation.load(inputs["prepare"].folder).target.classes
    missed = missed_classes(evidence.target, evidence.decided) if classes else ()
    if not classes or not len(missed):
        return ""
    names = ", ".join(classes[each] for each in missed[:SHOWN]) + ("" if len(missed) <= SHOWN else ", ...")
    return (
        f"{len(missed)} of {len(classes)} classes occur in the test rows but are never predicted: {names}; "
        "train.class_weights: balanced, or a goal such as f1 or log_loss, weighs them more"
    )


def _write_known_rows(inputs: Inputs, folder: Path) -> Path:
    """Write the rows that the challenger knows; they are stored with its version, for when it is the champion."""
    import numpy as np

    from models.data.preparation import KNOWN_ROWS_FILE, Preparation
    from models.judge.held_out import known_rows

    prepared = inputs["prepare"].folder
    np.save(folder / KNOWN_ROWS_FILE, known_rows(prepared, Preparation.load(prepared)), allow_pickle=False)
    return folder / KNOWN_ROWS_FILE


def _verdict(loop: Loop, evidence: Evidence) -> Verdict:
    from models.judge.decide import judge as decide

    goal = loop.spec.goal
    metric = metric_of(goal, evidence, loop.project.folder)
    return decide(
        evidence,
        loop.spec.judge,
        metric,
        goal.good_enough,
        loop.spec.serve.max_latency_ms,
        loop.spec.train.seed,
    )


def _evidence(loop: Loop, inputs: Inputs, rival: str) -> tuple[Evidence, int]:
    """Return the evidence without the test rows that the champion knows, and the number of these rows."""
    from models.data import feeds
    from models.data.preparation import Preparation
    from models.data.weights import weights_of
    from models.inference.portable import MODEL_FILE
    from models.judge.evidence import Evidence
    from models.judge.held_out import baseline_of, with_clusters

    prepared, exported = inputs["prepare"].folder, inputs["export"]
    preparation = Preparation.load(prepared)
    graph = exported.file(MODEL_FILE)
    served = Preparation.load(exported.folder).class_head
    against = _champion(loop, inputs, rival, preparation)
    known = against.known
    target = feeds.targets(prepared, "test")
    baseline = baseline_of(prepared, preparation, len(target), loop.spec.goal.reference or "mae")
    evidence = Evidence(
        task=preparation.task,
        target=target,
        thresholds={"challenger": served.threshold, "champion": against.threshold, "baseline": baseline.threshold},
        challenger=_predictions(inputs, graph, preparation),
        champion=against.prediction,
        baseline=baseline.prediction,
        weights=weights_of(prepared, "test"),
        baseline_name=baseline.name,
        references=_references(loop, prepared, preparation, baseline.name),
        slices=feeds.slice_values(prepared, "test", loop.spec.judge.slices),
        challenger_id=exported.digest,
        champion_id=rival.partition(":")[0] if against.prediction is not None else None,
        challenger_cost=_cost(inputs, graph, preparation),
        champion_cost=against.cost,
        parity=Parity.model_validate(
            {key: exported.result[key] for key in Parity.model_fields if key in exported.result}
        ),
        outputs=preparation.target.outputs,
        positive=preparation.target.positive,
        single_predictors=inputs["validate-prepared"].result["single_predictors"],
    )
    evidence = with_clusters(evidence, prepared, preparation, loop.spec)
    if known is None or not known.any():
        return evidence, 0
    note = f"{known.sum():,} of {len(known):,} test rows are, or may be, among those that the champion was trained on"
    if known.all():
        raise DataError(
            f"judge: {note}, and nothing is left to compare on: put data.split back as it was, or promote by hand"
        )
    loop.report.note(f"judge: {note}: they do not count")
    return evidence.only(~known), int(known.sum())


def _references(loop: Loop, prepared: Path, preparation: Preparation, baseline: str) -> dict[str, float]:
    """Return a compressor's bits per character for a text, the other naive forecasts of series, else nothing."""
    if preparation.window is not None:
        from models.data.feeds import targets
        from models.judge.held_out import naive_forecasts

        metric, target = metric_of(loop.spec.goal, preparation, loop.project.folder), targets(prepared, "test")
        forecasts = naive_forecasts(prepared, preparation, metric.name)
        others = [each for each in forecasts if each.name != baseline]
        return {each.name: float(metric.value(target, each.prediction)) for each in others}
    if preparation.characters is None:
        return {}
    from models.data.text import text_of
    from models.metrics.language import bz2_bits_per_char

    train, test = (text_of(prepared, split, preparation.characters) for split in ("train", "test"))
    return {"bz2": bz2_bits_per_char(train, test)}


class _Champion(NamedTuple):
    """The champion's predictions of our test rows, by its own preparation; all None without one."""

    prediction: np.ndarray | None = None
    cost: ServingCost | None = None
    known: np.ndarray | None = None
    """Which test rows it knows; None if its version has no such record."""
    threshold: float = 0.5


def _champion(loop: Loop, inputs: Inputs, rival: str, own: Preparation) -> _Champion:
    """Return the champion on our test rows; nothing if there is none or it cannot read the rows."""
    from models.data.preparation import KNOWN_ROWS_FILE, PREPARATION_FILE, Preparation
    from models.inference.portable import MODEL_FILE

    if not rival:
        return _Champion()
    number = rival.partition(":")[0]
    names = (MODEL_FILE, PREPARATION_FILE, KNOWN_ROWS_FILE)
    folder = cached_version(loop.workspace, loop.spec.name, number, names).folder
    theirs = Preparation.load(folder)
    is_reversed = theirs.target.is_reversed(own.target)
    if theirs.task != own.task or not (is_reversed or theirs.target.predicts_same(own.target)):
        loop.report.note(f"the champion (version {number}) predicts another target: judged by goal and baseline")
        return _Champion()
    try:
        predictions = _predictions(inputs, folder / MODEL_FILE, theirs)
        cost = _cost(inputs, folder / MODEL_FILE, theirs)
    except DataError as error:
        loop.report.note(f"the champion cannot read this data ({error}): judged by goal and baseline")
        return _Champion()
    threshold = theirs.class_head.threshold
    if is_reversed:
        loop.report.note(f"judge: the champion (version {number}) has the other class as its positive one")
        predictions, threshold = 1 - predictions, 1 - threshold
    return _Champion(predictions, cost, _known(inputs, folder), threshold)


def _known(inputs: Inputs, champion: Path) -> np.ndarray | None:
    """Return which test examples the champion knows; None if its version has no such record."""
    import numpy as np

    from models.data.preparation import KNOWN_ROWS_FILE
    from models.judge.held_out import is_known

    path = champion / KNOWN_ROWS_FILE
    known = np.load(path) if path.exists() else np.zeros(0, dtype=np.uint64)
    return is_known(inputs["prepare"].folder, known) if len(known) else None


def _predictions(inputs: Inputs, graph: Path, preparation: Preparation) -> np.ndarray:
    from models.inference.predict import predict

    return predict(graph, _test_rows(inputs, preparation), preparation)


def _cost(inputs: Inputs, graph: Path, preparation: Preparation) -> ServingCost:
    from models.inference.predict import latency_ms

    first = next(_test_rows(inputs, preparation, batch=1))
    example = {name: values[:1] for name, values in first.items()}
    return ServingCost(latency_ms=latency_ms(graph, example), size_mb=graph.stat().st_size / 1e6)


def _test_rows(inputs: Inputs, preparation: Preparation, **options: Any) -> Iterator[Feed]:
    from models.data.feeds import feeds

    raw = inputs["ingest"].file("raw.parquet")
    return feeds(inputs["prepare"].folder, "test", preparation, raw=raw, **options)


def _draw(loop: Loop, prepared: Path, folder: Path, verdict: Verdict, evidence: Evidence) -> None:
    """Draw the verdict's figures, for MLflow and for the card."""
    from models.data.preparation import Preparation
    from models.report import figures, output_figures

    target = Preparation.load(prepared).target
    models = {name: values for name, values in evidence.models.items() if name != "baseline"}
    classes = target.classes or []
    pictures = {"difference": figures.difference(verdict)}
    if verdict.slices:
        pictures["slices"] = figures.slices(verdict)
    if target.outputs:
        pictures |= _of_outputs(evidence, target)
    elif classes:
        pictures["confusion"] = figures.confusion_matrix(evidence.target, evidence.decided, classes)
        pictures["roc-pr"] = figures.roc_and_pr(evidence.target, models, classes)
        pictures["calibration"] = figures.calibration(evidence.target, models)
    elif evidence.task == "ranking":
        pictures["places"] = output_figures.places(evidence.target, models)
    elif evidence.task == "language":
        pictures["context"] = figures.bits_by_position(models, verdict.references)
    else:
        pictures["residuals"] = figures.residuals(evidence.target, evidence.challenger, target.name)
    if evidence.task not in ("language", "ranking") and not target.outputs:
        pictures["scores"] = figures.scores(evidence.target, evidence.challenger, classes, target.name)
    for name, content in pictures.items():
        path = folder / "figures" / f"{name}.svg"
        write_bytes(path, content)
        loop.outbox.artifact(LOOP_RUN, path, "verdict")


def _plain(name: str) -> str:
    """Return a name that MLflow takes as part of a metric's name."""
    return "".join(character if character.isalnum() or character in "_-. " else "_" for character in name)


def _of_outputs(evidence: Evidence, target: TargetEncoding) -> dict[str, bytes]:
    """Draw several outputs: quantiles against true values, each number's residuals, or a curve for each label."""
    from models.report import output_figures

    names = [output.name for output in target.outputs]
    if evidence.task == "quantile":
        levels = [output.quantile or 0.0 for output in target.outputs[: target.num_quantiles]]
        target_rows, rows = (each.reshape(-1, len(levels)) for each in (evidence.target, evidence.challenger))
        return {"quantiles": output_figures.quantiles(target_rows, rows, levels)}
    if evidence.task == "multilabel":
        return {"labels": output_figures.labels(evidence.target, evidence.challenger, names)}
    return {"targets": output_figures.targets(evidence.target, evidence.challenger, names)}


def _log(loop: Loop, verdict: Verdict) -> None:
    def named(model: str) -> dict[str, Any]:
        prefix = "test_" if model == "challenger" else f"test_{model}_"
        return {
            prefix + name: values[model] for name, values in verdict.metrics.items() if values.get(model) is not None
        }

    for model in ("challenger", "champion", "baseline"):
        loop.outbox.metrics(LOOP_RUN, named(model))
    references = {f"test_{name}_{verdict.metric}": value for name, value in verdict.references.items()}
    for output in verdict.outputs:
        own = {f"test_{_plain(output.name)}_{_plain(name)}": value for name, value in output.challenger.items()}
        references |= own
    loop.outbox.metrics(LOOP_RUN, {name: value for name, value in references.items() if value is not None})
    loop.outbox.tags(LOOP_RUN, {"loopline.decision": verdict.decision, "loopline.verdict": verdict.summary})
