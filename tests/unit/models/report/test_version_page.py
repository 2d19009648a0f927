"""The versions of a project: their trend is drawn with intervals, of verdicts about the same metric."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from markupsafe import escape

from models.inference.box import Box
from models.judge.verdict import Difference, Estimate
from models.report.facts import LastLoop, Overview, ProjectFacts
from models.report.version_contents import VersionContents
from models.report.version_page import (
    TriedRow,
    VersionSummary,
    render_against,
    render_playground,
    render_version,
    render_versions,
    trend,
)
from models.serving.playground_form import ExplainedRow, Occlusion, PlaygroundAnswer, PlaygroundField, PlaygroundForm
from models.serving.registry import RegisteredVersion
from tests.unit.models.report.test_card import card


def summary(number: str, metric: str = "roc_auc") -> VersionSummary:
    estimate = Estimate(value=0.7 + int(number) / 100, low=0.6, high=0.8)
    verdict = card().verdict.model_copy(update={"challenger": estimate, "metric": metric})
    tags = {"loopline.loop_id": f"tiny-{number}"}
    return VersionSummary(RegisteredVersion(number=number, tags=tags, verdict=verdict), registered=float(number))


def test_the_trend_leaves_out_another_metric() -> None:
    versions = [summary("1", "f1"), summary("2"), summary("3")]
    chart = ET.fromstring(trend(versions) or "")
    assert len([part for part in chart.iter("line") if part.get("class") == "band c0"]) == 2
    assert trend(versions[:2]) is None
    assert trend([]) is None


def test_dots_of_the_trend_have_the_colour_of_the_verdict() -> None:
    lost = summary("3")
    assert lost.version.verdict is not None
    kept = lost.version.verdict.model_copy(update={"decision": "keep"})
    lost = replace(lost, version=lost.version.model_copy(update={"verdict": kept}))
    colours = [f"mark {'green' if facts.version.verdict.promoted else 'amber'}" for facts in (summary("2"), lost)]
    chart = ET.fromstring(trend([summary("2"), lost]) or "")
    assert [part.get("class") for part in chart.iter("circle") if "mark" in part.get("class", "")] == colours


def test_two_side_by_side_give_the_difference_in_the_direction_that_is_asked() -> None:
    gain = Difference(value=0.02, low=-0.01, high=0.05)
    judged = card().verdict.model_copy(update={"champion_id": "1", "difference": gain})
    two = VersionContents(RegisteredVersion(number="2", verdict=judged), {"train": {"lr": 0.5}})
    one = VersionContents(summary("1").version, {"train": {"lr": 0.25}})
    page = render_against("tiny", two, one, LastLoop(), now=61.0)
    assert "<b>+0.02</b>" in page
    assert "(−0.01 to +0.05)" in page
    assert "<code>train.lr</code>" in page
    turned = render_against("tiny", one, two, LastLoop(), now=61.0)
    assert "<b>−0.02</b>" in turned
    assert "(−0.05 to +0.01)" in turned
    bare = VersionContents(RegisteredVersion(number="3"))
    assert "no verdict can be read" in render_against("tiny", two, bare, LastLoop(), now=61.0)


def test_pages_of_versions_link_to_their_loops() -> None:
    running = LastLoop(state="running", loop_id="tiny-4", began=1.0, step="train")
    page = render_version("tiny", summary("2"), running, now=61.0)
    assert 'href="/loops/tiny-2"' in page
    assert "running: train, 60 s" in page
    assert page.count(str(escape(card().verdict.summary))) == 1
    listed = render_versions("tiny", [summary("2"), summary("3")], running, now=61.0)
    assert listed.index("versions/3") < listed.index("versions/2")
    assert "None yet" in render_versions("tiny", [], LastLoop(), now=61.0)


def tried_page(form: PlaygroundForm, tried: TriedRow | None = None) -> str:
    overview = Overview.model_construct(at=61.0, projects=[ProjectFacts(name="tiny", folder="")])
    return render_playground(RegisteredVersion(number="1"), form, tried or TriedRow(), [], overview, ("", ""))


def test_each_column_has_the_control_that_suits_it() -> None:
    many = [f"c{number}" for number in range(60)]
    fields = [
        PlaygroundField(name="few", control="choice", value="u", levels=["u", "<b>"]),
        PlaygroundField(name="many", control="choice", levels=many),
        PlaygroundField(name="when", control="moment", value="2024-05-31"),
        PlaygroundField(name="n", control="decimal", value="0.5"),
        PlaygroundField(name="note", control="passage", value="\n</textarea>"),
    ]
    page = tried_page(PlaygroundForm(fields=fields))
    assert "<option selected>u</option>" in page
    assert "<option>&lt;b&gt;</option>" in page
    assert page.count("<datalist") == 1
    assert 'type="datetime-local" id="cell-2" name="cell-2" value="2024-05-31T00:00:00"' in page
    assert 'value="0.5" autocomplete="off" inputmode="decimal"' in page
    assert "\n\n&lt;/textarea&gt;</textarea>" in page, "a browser takes the first line break away"
    cells = {"few": "new", "when": "2024-05-31 14:30:00+02:00", "n": "x"}
    filled = tried_page(PlaygroundForm(fields=fields), TriedRow(cells=cells))
    assert "<option selected>new</option>" in filled
    assert 'value="2024-05-31T12:30:00"' in filled
    assert 'type="text" id="cell-2" name="cell-2" value="soon"' in tried_page(
        PlaygroundForm(fields=fields), TriedRow(cells={"when": "soon"})
    )


def test_an_explanation_has_the_columns_that_add_most() -> None:
    contributions = {f"x{number}": number / 10 for number in range(20)}
    why = ExplainedRow(of="prediction", base=1.0, value=20.0, contributions=contributions)
    answer = PlaygroundAnswer(records=[{"prediction": 20.0}], explanation=why)
    page = tried_page(PlaygroundForm(rows="[]"), TriedRow(answer=answer))
    assert "The 15 columns that add most of 20." in page
    assert (page.count("<title>x19</title>"), page.count("<title>x4</title>")) == (1, 0)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([Box(0, 0, 2, 1), Box(2, 0, 1, 1)], ["part of the picture in its mean colour", 'class="legend"', "<rect"]),
        (
            ["late", "<b>", "again"],
            [
                "without those words",
                "What the words of note add",
                '<mark class="c1">&lt;b&gt; <small>−0.1</small></mark> again',
            ],
        ),
    ],
)
def test_what_parts_of_a_picture_or_a_text_add_is_drawn(parts: list[Any], words: list[str]) -> None:
    part = Occlusion(
        column="note", output="probability_yes", value=0.9, parts=parts, changes=[0.2, -0.1, 0.01][: len(parts)]
    )
    sent = PlaygroundAnswer(records=[{"prediction": "yes"}], occlusions=[part], picture="AAAA")
    page = tried_page(PlaygroundForm(rows="[]"), TriedRow(PlaygroundAnswer.model_validate_json(sent.model_dump_json())))
    assert [text for text in words if text not in page] == []
