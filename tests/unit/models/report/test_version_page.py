"""The versions of a project: their trend is drawn with intervals, of verdicts about the same metric."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from markupsafe import escape

from models.judge.verdict import Estimate
from models.report.facts import LastLoop
from models.report.version_page import VersionSummary, render_version, render_versions, trend
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


def test_pages_of_versions_link_to_their_loops() -> None:
    running = LastLoop(state="running", loop_id="tiny-4", began=1.0, step="train")
    page = render_version("tiny", summary("2"), running, now=61.0)
    assert 'href="/loops/tiny-2"' in page
    assert "running: train, 60 s" in page
    assert page.count(str(escape(card().verdict.summary))) == 1
    listed = render_versions("tiny", [summary("2"), summary("3")], running, now=61.0)
    assert listed.index("versions/3") < listed.index("versions/2")
    assert "None yet" in render_versions("tiny", [], LastLoop(), now=61.0)
