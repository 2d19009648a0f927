"""The model card: a page with the verdict and its reasons, the data, the training, and the use of a model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.data.preparation import Preparation
from models.export.variants import VariantMeasurement
from models.feedback.columns import FEEDBACK_WORDS
from models.files import write_text
from models.identity.equal_share import EqualRows
from models.judge.column_importance import Importances
from models.judge.next_steps import next_steps
from models.judge.verdict import Verdict
from models.kinds.data_kind import PerDataKind
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec, Train
from models.project_spec.frequency import ROWS
from models.project_spec.references import short_name
from models.readable import as_shown
from models.report.inputs import input_rows
from models.report.training_figures import TrainingCourse, learning_curves
from models.training.costs.summary import Costs, of_results
from models.training.families import chosen_net
from models.training.job import LONGER, REFIT
from models.training.search_space import FOLDS, best_epochs, shares_of, shown
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.loop.loop_pages import page_of
from tasks.mlflow import provenance
from tasks.state import shared_files
from tasks.state.outbox import LOOP_RUN
from tasks.steps.card_decision import JUDGED_ON, decision, quantiles
from tasks.steps.card_families import family_rows, finished_trials, without_other_columns

if TYPE_CHECKING:
    from models.report.card import Chapter

CARD_FILE = "card.html"
_NOT_FACTS = ("params", "importances", "costs", "families")  # of the search: they are shown elsewhere on the page
CAPTIONS: dict[str, tuple[Chapter, str, str]] = {
    "difference": ("verdict", "Difference", "How much better the challenger is, with its interval."),
    "slices": ("slices", "Slices", "The metric on each declared part of the test rows."),
    "confusion": ("performance", "Confusion", "True classes against predicted ones."),
    "roc-pr": ("performance", "ROC and precision-recall", "The trade between catching and false alarms."),
    "calibration": ("performance", "Calibration", "Whether a predicted share comes true that often."),
    "context": ("performance", "Context", "What a character costs by how much of its window was read before it."),
    "residuals": ("performance", "Residuals", "Predictions against the truth, and what is left over."),
    "places": ("performance", "First places", "NDCG of the first places of each group."),
    "targets": ("performance", "Targets", "Predictions of each target against the truth."),
    "quantiles": ("performance", "Quantiles", "How many true values lie below each quantile, and within all."),
    "labels": ("performance", "Labels", "The trade between catching each label and false alarms."),
    "scores": ("performance", "Scores", "How the predictions are spread."),
    "search-history": ("search", "Trials", "Each trial in order, and the best so far."),
    "search-parallel": ("search", "Settings", "Each trial as a line through its settings."),
    "search-importance": ("search", "Importance", "Which setting mattered."),
}


def write_card(loop: Loop) -> tuple[StepRecord, bool]:
    """Write the card of this loop's version into MLflow and to a fixed path in the project's state."""

    def act(inputs: Inputs, folder: Path) -> StepResult:
        from models.report.card import render_card

        html = render_card(_card(loop, inputs))
        write_text(folder / CARD_FILE, html)
        write_text(loop.state / CARD_FILE, html)
        shared_files.publish(loop.state, loop.epoch, loop.state / CARD_FILE)
        loop.outbox.artifact(LOOP_RUN, folder / CARD_FILE)
        return StepResult([folder / CARD_FILE], {"page": str(loop.state / CARD_FILE)})

    return loop.carry_out("card", act)


def _card(loop: Loop, inputs: Inputs) -> Any:
    from models.report.card import Card

    judged = Verdict.model_validate_json(inputs["judge"].file("verdict.json").read_text())
    preparation = Preparation.load(inputs["export"].folder)
    trained, search, exported, outcome = (inputs[name].result for name in ("train", "search", "export", "promote"))
    number, folds = outcome["version"], search.get("params", {}).get(f"model.{FOLDS}", 0)
    judged_on = JUDGED_ON[bool(folds)]
    trials = finished_trials(inputs["prepare"], inputs["search"].folder, loop.state, loop.project.folder)
    environments = [trained.get("environment", {}), *(trial.result.environment for trial in trials.values())]
    companions, further_steps = without_other_columns(environments, judged.metric, judged.sign)
    settings, defaults = _settings(loop.spec.train, search.get("params", {}))
    return Card(
        project=loop.spec.name,
        verdict=judged,
        description=loop.spec.description,
        version=number,
        loop_id=outcome["loop_id"],
        when=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(outcome["at"])),
        figures=_figures(inputs),
        data=_data(loop.spec, inputs, preparation),
        schema=input_rows(preparation),
        training=_training(loop.spec, trained, search, folds),
        settings=settings,
        defaults=defaults,
        decision=decision(exported.get("class_head", {}), preparation, loop.spec.goal.positive is not None, judged_on),
        importances=_importances(inputs),
        quantiles=quantiles(exported.get("quantile_shifts", {}), judged_on),
        search={**{key: value for key, value in search.items() if key not in _NOT_FACTS}, **companions},
        families=family_rows(search.get("families", []), trials, loop.rank_pool),
        provenance=_provenance(loop, trained, search),
        samples=_samples(exported),
        variants=[VariantMeasurement.model_validate(variant) for variant in exported["variants"]],
        usage=_usage(loop.spec, number, exported.get("input_example")),
        next_steps=[] if judged.promoted else [*_next_steps(judged), *further_steps],
        warnings=inputs["judge"].result.get("warnings", []),
        limits=_limits(loop.spec, preparation),
        links=_links(loop.state, loop.id),
    )


def _settings(train: Train, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a training that differ from the defaults or were searched, and the others."""
    values, usual = (block.model_dump(exclude={"augment", "max_restarts", "refit"}) for block in (train, Train()))
    settings = {name: value for name, value in values.items() if value != usual[name]} | _short(shown(params))
    return settings, {name: value for name, value in values.items() if name not in settings}


def _training(spec: Spec, trained: dict[str, Any], search: dict[str, Any], folds: int) -> dict[str, Any]:
    params = search.get("params", {})
    return {
        "net": _net(chosen_net(spec, params), shares_of(params), folds),
        **({"began with": trained["begun_with"] or "random weights"} if spec.train.start else {}),
        "parameters": trained["num_parameters"],
        **(best_epochs(trained["members"]) if folds else _fits(trained)),
        **({LONGER: trained[LONGER]} if trained.get(LONGER) else {}),
        "seconds": round(trained["seconds"], 1),
        "ranks": trained["world_size"],
        "threads a rank": trained["threads"],
        "restarts": trained["restarts"],
        "taken up again at steps": ", ".join(map(str, trained["resumed_from"])) or "never",
        **_costs(search, trained),
    }


def _net(name: str, shares: dict[str, float], folds: int) -> str:
    """Return the net, with its members if it is an ensemble, and the models of a bag."""
    name = short_name(name)
    bags = f"; a bag of {folds} models for each, trained on {folds - 1} of {folds} folds" if folds else ""
    return f"{name} of {', '.join(f'{part} ({share:.0%})' for part, share in shares.items())}{bags}" if shares else name


def _fits(trained: dict[str, Any]) -> dict[str, Any]:
    """Return the course of a training; of an ensemble that of each member."""
    members = trained.get("members", {})
    if members:
        return {
            f"{name}: {key}": value
            for name, trained_member in members.items()
            for key, value in _fits(trained_member).items()
        }
    return {
        "epochs": f"{len(trained['epochs'])}, best {trained['best_epoch']}",
        **_refit(trained["environment"].get(REFIT)),
        **{f"{key}, chosen": reason for key, reason in trained["environment"].get("chosen", {}).items()},
    }


def _refit(used: dict[str, Any] | None) -> dict[str, str]:
    """Return which rows a refitted model has learnt from, and whose figures those of validation are."""
    if used is None:
        return {}
    rounds = f", {used['rounds']:,} rounds" if "rounds" in used else ""
    return {
        "fitted again": f"on {used['examples']:,} training and validation examples{rounds}",
        "figures of validation": "of the first fit, on the training examples alone",
    }


def _next_steps(verdict: Any) -> list[str]:
    return next_steps(verdict)


def _importances(inputs: Inputs) -> Any:
    measured = inputs["judge"].result.get("importances")
    return Importances.model_validate(measured) if measured else None


def _costs(search: dict[str, Any], trained: dict[str, Any]) -> dict[str, Any]:
    """Return the model's training costs in readable units, without those that were not measured."""
    parts = of_results(search, trained)
    if not parts:
        return {}
    training, both = parts.get("train", Costs()), parts["total"]
    rates = {
        "samples per second": training.samples_per_s,
        "tokens per second": training.tokens_per_s,
        "share of the device's peak (MFU)": training.mfu,
        "waiting for data, seconds": training.data_wait_s,
        "most memory of a rank, MB": training.peak_memory_mb,
        "device": training.device,
        "device-seconds, training": training.device_seconds,
        "device-seconds, with the search": both.device_seconds,
        "petaflop/s-days, with the search": both.petaflop_s_days,
        "energy, with the search, kJ": None if both.energy_j is None else both.energy_j / 1e3,
    }
    measured = {name: value for name, value in rates.items() if value is not None}
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in measured.items()}


def _figures(inputs: Inputs) -> list[Any]:
    from models.report.card import Figure

    trained = inputs["train"].result
    pictures = [
        Figure(title, caption, path.read_bytes(), chapter)
        for path in [*inputs["judge"].figures, *inputs["search"].figures]
        for chapter, title, caption in [CAPTIONS[path.stem]]
    ]
    metric = inputs["judge"].result["metric"]
    trainings: dict[str, list[TrainingCourse]] = {}
    for name, model in (trained.get("members") or {"": trained}).items():
        fit = TrainingCourse(model["epochs"], model["best_epoch"])
        trainings.setdefault(name.partition("-fold-")[0], []).append(fit)
    curves = [
        Figure(
            f"Learning curves{name and f': {name}'}",
            f"Loss and metric after each epoch{f', of {len(fits)} folds' if len(fits) > 1 else ''}.",
            learning_curves(fits, metric),
            "training",
        )
        for name, fits in trainings.items()
    ]
    return [*pictures, *curves]


def _sample(most: int | None, num_train: int) -> dict[str, str]:
    """Return how many training rows the model learns from, if `train.rows` leaves some out."""
    is_sample = most is not None and most < num_train
    return {"train examples that count": f"a sample of at most {most:,} (train.rows)"} if is_sample else {}


def _data(spec: Spec, inputs: Inputs, preparation: Preparation) -> dict[str, Any]:
    raw, prepared, version = (inputs[name].result for name in ("ingest", "prepare", "version"))
    extremes = as_shown(preparation.extremes, spec.data.show_rows, lambda _: {})
    return {
        "source": str(spec.data.source),
        "dataset version": version["prepared"],
        "raw data": version["raw"],
        "raw rows": raw["rows"],
        "labelled predictions": _counts(
            {FEEDBACK_WORDS[name]: count for name, count in raw.get("feedback", {}).items()}
        )
        or "none",
        "rows left out": _counts(prepared["dropped"]) or "none",
        **{f"{split} examples": count for split, count in preparation.rows.items()},
        **_sample(spec.train.rows, preparation.rows["train"]),
        **_series(preparation),
        "split": spec.data.split.by,
        "equal rows": EqualRows.model_validate(prepared["equal_rows"]).text if prepared["equal_rows"] else "none",
        "target": preparation.target.name,
        "validation, raw": inputs["validate-raw"].result["status"],
        "validation, prepared": inputs["validate-prepared"].result["status"],
        "columns that alone predict the target": ", ".join(inputs["validate-prepared"].result["single_predictors"])
        or "none",
        "columns left out": ", ".join(prepared["left_out"]) or "none",
        **{f"extreme values of {name}": text for name, text in extremes.items()},
    }


def _series(preparation: Preparation) -> dict[str, Any]:
    series, window = preparation.series, preparation.window
    if series is None or window is None:
        return {}
    missing = (
        f"{series.num_inserted:,} missing steps inserted without values"
        if series.num_inserted
        else f"{series.num_gaps:,} gaps, which no window spans"
        if series.num_gaps
        else "none"
    )
    return {
        "steps": f"each {series.frequency}" if series.frequency != ROWS else "every row, whatever its time",
        "gaps in the steps": missing,
        "series": f"{series.num_series:,}, named by {series.key!r}" if series.key else "1",
        "window": f"{window.length} steps, for {_steps_ahead(window.horizons)}",
        "season": f"{series.season} steps" if series.season else "none",
        "reference forecast": _reference(preparation),
    }


def _steps_ahead(horizons: list[int]) -> str:
    if len(horizons) == 1:
        return f"the step {horizons[0]} ahead"
    if horizons == list(range(horizons[0], horizons[-1] + 1)):
        return f"the steps {horizons[0]} to {horizons[-1]} ahead"
    return f"the steps {', '.join(map(str, horizons))} ahead"


def _reference(preparation: Preparation) -> str:
    reference = preparation.reference
    if reference is None:
        return "none: the net forecasts by itself"
    kinds = {
        "last": "the last value of the window",
        "seasonal": "for each horizon the value of a season ago",
        "linear": "a linear map of the window, relative to its last value",
    }
    if len(reference.back) == 1:
        kinds["seasonal"] = f"the value {reference.back[0] + 1} steps before the window's end"
    return kinds[reference.kind] + (", each window scaled" if reference.is_scaled else "")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)


def _links(state: Path, loop_id: str) -> dict[str, str]:
    pages = [page_of(state, loop_id, name) for name in ("validation-prepared", "validation-raw")]
    return {page.stem: page.resolve().as_uri() for page in pages}


def _samples(exported: dict[str, Any]) -> list[Any]:
    from models.report.card import Snippet

    return [
        Snippet(f"At temperature {sample['temperature']:g}, after a prompt", f"{sample['prompt']}|{sample['text']}")
        for sample in exported.get("samples", [])
    ]


def _provenance(loop: Loop, trained: dict[str, Any], search: dict[str, Any]) -> dict[str, Any]:
    code = provenance.code_version()
    return {
        "loop": loop.id,
        "asked for by": loop.trigger,
        "Loopline": provenance.shown(code),
        "project": provenance.shown(provenance.project_version(loop.project.folder)),
        "lock file": code["lock"][:16],
        "weights": trained["weights_sha256"],
        "seed": loop.spec.train.seed,
        "study": search.get("study", "none"),
    }


def python_use(model: str, number: str) -> str:
    """Return the lines of Python by which anybody predicts with a version."""
    return (
        "import mlflow\n\n"
        f'model = mlflow.pyfunc.load_model("models:/{model}/{number}")  # or {model}@champion\n'
        "print(model.predict(model.input_example))"
    )


def _usage(spec: Spec, number: str, example: Any) -> list[Any]:
    from models.report.card import Snippet

    example_json = json.dumps(example, ensure_ascii=False)[:600] if example else ""
    return [
        Snippet('In Python, after `eval "$(loopline env)"`', python_use(spec.name, number)),
        *([Snippet("An input", example_json)] if example_json else []),
        Snippet("On a machine without Loopline", f"loopline export {spec.name} --version {number} --to bundle"),
        Snippet("Undo the promotion", f"loopline rollback {spec.name}"),
    ]


def _limits(spec: Spec, preparation: Preparation) -> list[str]:
    limits = [
        f"It answers for data like its source ({spec.data.source}); elsewhere its numbers say nothing.",
        "A character that was not seen in training counts as unknown."
        if preparation.characters
        else "A categorical value that was not seen in training counts as unknown.",
    ]
    if not spec.judge.slices:
        limits.append("No slices were declared: it may do worse for some groups than the totals show.")
    return [*limits, *_LIMITS[preparation.kind]]


_LIMITS: PerDataKind[tuple[str, ...]] = {
    "table": (),
    "image": (),
    "series": ("It expects steps as far apart as in training. A missing value is taken to be the last known one.",),
    "text": (),
}


def _short(params: dict[str, Any]) -> dict[str, Any]:
    return {path.removeprefix("train."): value for path, value in params.items()}
