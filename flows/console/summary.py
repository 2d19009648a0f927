"""The summary of a loop: printed at its end, and published as artifacts on Prefect's page."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from models.errors import one_line
from models.pipeline.records import StepRecord
from models.pipeline.steps import PlannedStep
from models.readable import readable
from models.training.costs.summary import of_results
from models.training.search_space import shown
from tasks.host.workspace import Project
from tasks.loop.loop_pages import PAGE_OF_STEP, page_of
from tasks.loop.step_cache import StepCache
from tasks.platform.report_pages import address_of
from tasks.platform.services import loop_address
from tasks.state.outbox import LOOP_RUN, SPEC_FILE

if TYPE_CHECKING:
    from tasks.loop.loop import Loop

_OUTCOMES = {"promote": "promoted", "keep": "not promoted"}
# An underscore within a word, such as in test_f1, is no emphasis.
_MARKUP = re.compile(r"[\\`*\[\]<>|~#!$&]|(?<![^\W_])_|_(?![^\W_])|^[-+](?=\s)|^\d+[.)]")


def summary(project: Project, step_cache: StepCache, plan: Sequence[PlannedStep], ran: bool) -> dict[str, Any]:
    """Return the results of the project's last loop as plain data; `ran` is false if every step was done before."""
    latest = step_cache.records.latest
    # A source that changed while the loop ran is planned for the next one, and has no records yet.
    records = {planned.step: planned.record or (latest(planned.step) if ran else None) for planned in plan}
    results = {step: record.result if record else {} for step, record in records.items()}
    judged, trained = results["judge"], results["train"]
    champion = step_cache.champion()
    return {
        "project": step_cache.spec.name,
        "loop_id": _loop_id(records),
        "ran": ran,
        "decision": judged.get("decision"),
        "reasons": judged.get("reasons", []),
        "metric": judged.get("metric"),
        "value": judged.get("value"),
        "champion_value": judged.get("champion_value"),
        "baseline_value": judged.get("baseline_value"),
        "references": judged.get("references", {}),
        "metrics": {
            **{f"test_{name}": value for name, value in judged.get("metrics", {}).items()},
            **{name: value for name, value in _best_epoch(trained).items() if name.startswith(("val_", "train_"))},
        },
        "version": results["register"].get("version"),
        "champion": champion.number if champion else None,
        "dataset": results["version"].get("prepared"),
        "rows": results["prepare"].get("rows"),
        "params": shown(results["search"].get("params", {})),
        "trials": results["search"].get("trials", 0),
        "costs": {part: costs.figures() for part, costs in of_results(results["search"], trained).items()},
        "card": str(step_cache.state / "card.html") if (step_cache.state / "card.html").exists() else None,
        "validation": [str(path) for path in sorted((step_cache.state / "reports").glob("*.html"))],
        "workspace": str(project.workspace.root),
    }


def print_summary(document: dict[str, Any]) -> None:
    """Print the summary: the decision with its reasons, the numbers, the files, and further commands."""
    verdict = _OUTCOMES.get(str(document["decision"]), "not judged")
    colour = "green" if document["decision"] == "promote" else "yellow"
    if not document["ran"]:
        click.echo("Nothing to do: every step is up to date.")
    click.secho(f"\n{document['project']} version {document['version']}: {verdict}", fg=colour, bold=True)
    for reason in document["reasons"]:
        click.echo(f"  {reason}")
    click.echo()
    for name, value in _lines(document):
        click.echo(f"  {name:<12} {value}")
    click.echo(
        '\n  Look: open the card in a browser; `loopline up` shows Prefect and MLflow; `eval "$(loopline env)"` points'
    )
    click.echo("  the mlflow, prefect and dvc programs here; `loopline plan` says what would run next and why.")


def verdict_markdown(document: Mapping[str, Any]) -> str:
    """Return the verdict as Markdown, for a comment on a pull request and for Prefect's page.

    Args:
        document: A summary, or what the steps `judge` and `promote` recorded with the project's name and the loop's id.
    """
    outcome = _OUTCOMES.get(str(document.get("decision")), "not judged")
    version = document.get("version")
    title = f"## {_escaped(document['project'])}{f' version {version}' if version else ''}: {outcome}"
    reasons = "\n".join(f"- {_escaped(reason)}" for reason in document.get("reasons", ()))
    compared = [
        (who, document.get(key)) for who, key in (("challenger", "value"), ("champion", "champion_value"),
                                                  ("baseline", "baseline_value"))
    ]  # fmt: skip
    rows = [(f"{document.get('metric')} of the {who}", value) for who, value in compared if value is not None]
    rows += [(name, value) for name, value in document.get("metrics", {}).items() if value is not None]
    table = "\n".join(
        ["| metric | value |", "|---|---|", *(f"| {_escaped(name)} | {readable(value)} |" for name, value in rows)]
    )
    parts = [title, reasons, table if rows else "", f"Loop `{document['loop_id']}`" if document.get("loop_id") else ""]
    return "\n\n".join(part for part in parts if part)


@contextlib.contextmanager
def described(loop: Loop) -> Iterator[None]:
    """Describe the loop's run in MLflow while it runs, and how it ended."""
    loop.outbox.note(LOOP_RUN, run_note(loop, "running"))
    state = "ended early"
    try:
        yield
        state = ""
    except Exception as error:
        state = one_line(error)
        raise
    finally:
        loop.outbox.note(LOOP_RUN, run_note(loop, state))


def run_note(loop: Loop, state: str) -> str:
    """Return the description of the loop's run in MLflow, in Markdown: what came of it, and where its pages are.

    Args:
        loop: The loop.
        state: What is said of a loop without a verdict.
    """
    judged = loop.done["judge"].result if "judge" in loop.done else {}
    outcome = _OUTCOMES.get(loop.done["promote"].result["decision"], "") if "promote" in loop.done else state
    reasons = "\n".join(f"* {_escaped(reason)}" for reason in judged.get("reasons", ()))
    links = {
        "model card": "artifact:card.html" if "card" in loop.done else "",
        "loop": loop_address(loop.workspace, loop.id),
        "data": "artifact:validation/raw/validation-raw.html" if "validate-raw" in loop.done else "",
        "spec": f"artifact:{SPEC_FILE}",
    }
    line = " · ".join(f"[{name}]({address})" for name, address in links.items() if address)
    return "\n\n".join(filter(None, (loop.spec.description, f"**{_escaped(outcome)}**" * bool(outcome), line, reasons)))


def publish(loop: Loop, step: str) -> None:
    """Publish what a step has made on its task's page in Prefect: a link to its report, the verdict; most have none."""
    from prefect.artifacts import create_link_artifact, create_markdown_artifact

    key = loop.spec.name.replace("_", "-")
    if step == "promote" and step in loop.done:
        description = f"The verdict of loop {loop.id}"
        judged, promoted = loop.done["judge"].result, loop.done["promote"].result
        document = {**judged, **promoted, "project": loop.spec.name, "loop_id": loop.id}
        create_markdown_artifact(verdict_markdown(document), key=f"{key}-verdict", description=description)
    name = PAGE_OF_STEP.get(step)
    if name and (page := page_of(loop.state, loop.id, name)).is_file():
        address = address_of(loop.workspace, loop.spec.name, page)
        title = f"{loop.spec.name}: {page.stem} of loop {loop.id}"
        create_link_artifact(
            address, link_text=page.name, key=f"{key}-{name.replace('_', '-')}", description=f"[{title}]({address})"
        )


def _escaped(text: object) -> str:
    """Return a text as one line that Markdown shows as it is: names of groups and metrics may come from the data."""
    return _MARKUP.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", " ".join(str(text).split()))


def _loop_id(records: dict[str, StepRecord | None]) -> str | None:
    last = max((record for record in records.values() if record), key=lambda record: record.finished, default=None)
    return last.loop_id if last else None


def _best_epoch(trained: dict[str, Any]) -> dict[str, float]:
    """Return the values of the best epoch, whose weights are used: `val_loss`, the goal's validation metric, others."""
    epochs: list[dict[str, float]] = trained.get("epochs", [])
    best = int(trained.get("best_epoch", 0))
    return epochs[best - 1] if 1 <= best <= len(epochs) else {}


def _cost(costs: dict[str, dict[str, float]]) -> str:
    """Return the model's measured costs as one line."""
    train, total = costs.get("train", {}), costs["total"]
    parts = [f"{total['device_seconds']:,.1f} device-seconds with the search"]
    if "petaflop_s_days" in total:
        parts.append(f"{total['petaflop_s_days']:.2g} petaflop/s-days")
    for name, unit, words in (("samples_per_s", 1, "{:,.0f} samples/s"), ("mfu", 100, "MFU {:.2g} %")):
        if name in train:
            parts.append(words.format(train[name] * unit))
    if "energy_j" in total:
        parts.append(f"{total['energy_j'] / 1e3:,.1f} kJ")
    return ", ".join(parts)


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    number = "{:.4f}".format
    lines = []
    if document["value"] is not None:
        references = [
            f"{name} {number(document[f'{name}_value'])}"
            for name in ("champion", "baseline")
            if document.get(f"{name}_value") is not None
        ]
        references += [f"{name} {number(value)}" for name, value in document["references"].items() if value is not None]
        lines.append(
            (document["metric"], number(document["value"]) + (f"  ({', '.join(references)})" if references else ""))
        )
    if document["rows"]:
        lines.append(("rows", ", ".join(f"{split} {count:,}" for split, count in document["rows"].items())))
    if document["costs"]:
        lines.append(("cost", _cost(document["costs"])))
    lines += [("dataset", f"{document['dataset']} (DVC)"), ("loop", str(document["loop_id"]))]
    lines.append(
        (
            "champion",
            f"version {document['champion']} of registered model {document['project']} (MLflow)"
            if document["champion"]
            else "none",
        )
    )
    if document["card"]:
        lines.append(("card", str(document["card"])))
    lines += [("report", page) for page in document["validation"] if Path(page).exists()]
    return lines
