"""The summary is of the work that the spec asks for, not of whatever was done last."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from flows.console.summary import _best_epoch, print_summary, run_note, summary, verdict_markdown
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.pipeline.steps import STEPS
from models.project_spec.reader import read_spec
from tasks.host.workspace import Project
from tasks.loop.step_cache import StepCache
from tasks.tools import dvc_view
from tests.conftest import MakeProject

DATASET = {"prepared": "abc.dir", "raw": "def.dir"}


@pytest.fixture
def project(make_project: MakeProject, code_memory: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = make_project("tiny")
    monkeypatch.setattr(dvc_view, "hashes", lambda _: DATASET)
    (project.workspace.cache / "code.json").write_text(code_memory)
    return project


def step_cache_of(project: Project, *overrides: str) -> StepCache:
    return StepCache(project, read_spec(project.spec_path, overrides))


def _summary(project: Project, ran: bool) -> dict[str, Any]:
    step_cache = step_cache_of(project)
    return summary(project, step_cache, step_cache.plan(), ran)


def record_all(project: Project, value: float, finished: float, *overrides: str) -> None:
    """Records of a whole loop whose model reached `value`."""
    step_cache = step_cache_of(project, *overrides)
    done: dict[str, StepRecord] = {}
    for number, step in enumerate(STEPS):
        parts = step_cache.parts(step, done)
        result: dict[str, Any] = {
            "ingest": {"rows": 200},
            "prepare": {"rows": {"train": 140, "validation": 30, "test": 30}},
            "version": DATASET,
            "search": {"params": {"train.lr": value}, "trials": 3, "costs": {"device_seconds": 5.0, "flops": 8.64e18}},
            "train": {
                "weights_sha256": f"{value}",
                "best_epoch": 1,
                "epochs": [{"epoch": 1, "val_loss": 0.5}],
                "costs": {"device_seconds": 7.0, "flops": 8.64e18, "mfu": 0.31},
            },
            "judge": {
                "decision": "promote",
                "reasons": ["better"],
                "metric": "accuracy",
                "value": value,
                "metrics": {"f1": value},
            },
            "register": {"version": str(int(finished))},
        }.get(step.name, {"decision": "promote"})
        done[step.name] = StepRecord(
            step=step.name,
            key=key_of(parts),
            parts=parts,
            digest=f"{step.name} {key_of(parts)}",
            result=result,
            loop_id=f"tiny-{finished:g}",
            finished=finished + number / 100,
        )
        step_cache.records.save(done[step.name])


def test_the_summary_tells_what_was_found_and_decided(project: Project) -> None:
    record_all(project, 0.9, 1)
    told = _summary(project, ran=True)
    assert (told["decision"], told["metric"], told["value"]) == ("promote", "accuracy", 0.9)
    assert told["metrics"] == {"test_f1": 0.9, "val_loss": 0.5}
    assert (told["version"], told["dataset"], told["trials"]) == ("1", "abc.dir", 3)
    assert told["loop_id"] == "tiny-1"
    assert told["costs"]["total"]["device_seconds"] == 12
    assert told["costs"]["total"]["petaflop_s_days"] == pytest.approx(0.2)
    assert json.loads(json.dumps(told)) == told


def test_a_loop_is_told_though_its_source_changed_meanwhile(project: Project) -> None:
    record_all(project, 0.9, 1)
    rows = project.folder / project.spec().data.source
    rows.write_bytes(rows.read_bytes() + b"\n")
    told = _summary(project, ran=True)
    assert (told["decision"], told["loop_id"]) == ("promote", "tiny-1")


def test_a_spec_gone_back_to_is_told_with_its_own_numbers(project: Project) -> None:
    record_all(project, 0.9, 1)
    record_all(project, 0.5, 2, "train.lr=0.5")
    assert all(item.state == "done" for item in step_cache_of(project).plan())
    told = _summary(project, ran=False)
    assert (told["value"], told["version"]) == (0.9, "1")


def test_a_project_that_never_ran(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    told = _summary(project, ran=False)
    assert (told["decision"], told["champion"], told["card"]) == (None, None, None)
    print_summary(told)
    assert "not judged" in capsys.readouterr().out


def test_a_person_reads_decision_reason_number_and_place(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    record_all(project, 0.9, 1)
    card = project.state("tiny") / "card.html"
    card.parent.mkdir(parents=True)
    card.write_text("<html></html>")
    print_summary(_summary(project, ran=True))
    shown = capsys.readouterr().out
    for words in (
        "tiny version 1: promoted",
        "better",
        "accuracy",
        "0.9000",
        "train 140",
        "abc.dir (DVC)",
        "12.0 device-s",
        "MFU 31 %",
        str(card),
    ):
        assert words in shown, words


def test_a_pull_request_reads_outcome_reasons_and_a_table(project: Project) -> None:
    record_all(project, 0.9, 1)
    text = verdict_markdown({**_summary(project, ran=True), "champion_value": 0.875})
    assert text.splitlines() == [
        "## tiny version 1: promoted", "", "- better", "", "| metric | value |", "|---|---|",
        "| accuracy of the challenger | 0.9 |", "| accuracy of the champion | 0.875 |", "| test_f1 | 0.9 |",
        "| val_loss | 0.5 |", "", "Loop `tiny-1`",
    ]  # fmt: skip


def test_a_text_from_the_data_is_shown_as_it_is_and_makes_no_markup() -> None:
    """A group's name may be any text of a column."""
    texts = [
        "a | b", "`x", "one\ntwo\n\n## fake: promoted", "<img src=x onerror=y>", "![x](http://x/y)", "[x](y)",
        "*x* __y__", "~~x~~", "# x", "> x", "- x", "+ x", "1. x", "10) x", "a\\|b", "&amp;", "<!-- x", "http\\",
        "_x_ test_f1",
    ]  # fmt: skip
    document = {"project": "tiny", "decision": "keep", "reasons": texts, "metrics": dict.fromkeys(texts, 0.5)}
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(verdict_markdown(document))
    inlines = [token for token in tokens if token.type == "inline"]
    assert all(child.type == "text" for token in inlines for child in token.children or ())
    shown = ["".join(child.content for child in token.children or ()) for token in inlines]
    lines = [" ".join(text.split()) for text in texts]
    cells = [cell for line in lines for cell in (line, "0.5")]
    assert shown == ["tiny: not promoted", *lines, "metric", "value", *cells]
    assert not [token.type for token in tokens if token.type.startswith(("html", "blockquote", "ordered"))]
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h2"]


def test_a_project_that_never_ran_has_a_verdict_of_one_line(project: Project) -> None:
    assert verdict_markdown(_summary(project, ran=False)) == "## tiny: not judged"


def test_the_metrics_are_those_of_the_epoch_that_was_kept() -> None:
    epochs = [{"val_loss": 0.5, "lr": 1.0}, {"val_loss": 0.2, "lr": 0.5}, {"val_loss": 0.3, "lr": 0.1}]
    assert _best_epoch({"best_epoch": 2, "epochs": epochs})["val_loss"] == 0.2
    assert _best_epoch({}) == {}


def test_a_run_is_described_by_its_outcome_with_links_to_its_pages(project: Project) -> None:
    loop: Any = SimpleNamespace(spec=project.spec(), id="l-1", workspace=project.workspace, done={})
    note = run_note(loop, "the source [x] is away")
    assert "**the source \\[x\\] is away**" in note
    assert "[loop](http://127.0.0.1:4300/loops/l-1) · [spec](artifact:spec.json)" in note
    assert "card" not in note
    results = {
        "judge": {"reasons": ["Good enough."]},
        "promote": {"decision": "promote"},
        "card": {},
        "validate-raw": {},
    }
    loop.done = {name: SimpleNamespace(result=result) for name, result in results.items()}
    note = run_note(loop, "")
    assert "**promoted**\n\n[model card](artifact:card.html)" in note
    assert note.endswith("\n\n* Good enough.")
    assert "[data](artifact:validation/raw/validation-raw.html)" in note
