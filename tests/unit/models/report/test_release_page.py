"""The page of a release shows what answers, offers what can be done now, and escapes what people wrote."""

from __future__ import annotations

from typing import Any

from models.judge.verdict import Difference, Estimate
from models.report.release_page import ReleasedVersion, ReleaseFacts, render_live, render_releases
from models.serving.releases import PLAN, Canary, ReleasePlan
from models.serving.shadow_comparison import ShadowComparison
from tests.told_facts import NOW, facts

IN_USE = [
    ReleasedVersion("2", "stable", 0.9, 900, 0, 3, Estimate(value=0.71, low=0.7, high=0.72), "green"),
    ReleasedVersion("3", "canary", 0.1, 100, 2, 0),
    ReleasedVersion("1", "refused", 0.0, 0, 0, 0, reason="<damaged>"),
]


def released(plan: ReleasePlan, **more: Any) -> ReleaseFacts:
    project = facts()
    assert project.champion is not None
    champion = project.champion.model_copy(update={"tags": {PLAN: plan.model_dump_json()}})
    project = project.model_copy(update={"champion": champion})
    return ReleaseFacts(project, ["3", "1"], NOW, IN_USE, workers=1, **more)


def test_only_what_can_be_done_is_offered() -> None:
    alone = render_releases(released(ReleasePlan()))
    assert ("/canary" in alone, "/return" in alone, "/end" in alone) == (True, False, False)
    canary = render_releases(released(ReleasePlan(canary=Canary(version="3", share=0.1))))
    assert ("/return" in canary, "/end" in canary) == (True, True)
    shadow = render_releases(released(ReleasePlan(shadow="3")))
    assert ("/return" in shadow, "/end" in shadow) == (False, True)
    none = render_releases(ReleaseFacts(facts(champion=None, moves=[]), ["3"], NOW))
    assert ("/canary" in none, "There is no champion yet" in none) == (False, True)


def test_figures_of_each_version_are_shown_and_the_shadow_beside_them() -> None:
    gain = Difference(value=0.02, low=-0.01, high=0.05)
    comparison = ShadowComparison(
        version="3",
        num_rows=60,
        agreement=0.9,
        num_labelled=40,
        metric="auc",
        answered=0.7,
        shadow=0.72,
        difference=gain,
    )
    page = render_live(released(ReleasePlan(shadow="3"), comparison=comparison, behind=["a server is late"]))
    assert "900" in page
    assert "<b>0.71</b>" in page
    assert "&lt;damaged&gt;" in page
    assert "+0.02" in page
    assert "a server is late" in page
