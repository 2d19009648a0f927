"""What an overview tells, made up: for the tests of the light, the pages and the terminal."""

from __future__ import annotations

from typing import Any

from models.judge.verdict import Difference, Estimate, Verdict
from models.monitoring.report import Drift, MonitoringReport, WindowReport
from models.project_spec import blocks as spec
from models.report.facts import DiskUsage, LastLoop, Overview, ProjectFacts
from models.report.light import light, workspace_light
from models.serving.registry import ChampionMove, RegisteredVersion

NOW = 1_800_000_000.0
DAY = 86400.0


def verdict(**told: Any) -> Verdict:
    given: dict[str, Any] = {
        "decision": "promote",
        "reasons": ["Promoted. First model."],
        "task": "binary",
        "metric": "roc_auc",
        "direction": "maximize",
        "rules": spec.Judge(),
        "num_samples": 5000,
        "challenger": Estimate(value=0.73, low=0.72, high=0.74),
    }
    return Verdict.model_validate({**given, **told})


def window(number: int, **told: Any) -> WindowReport:
    shares = {"nulls": 0, "nulls_reference": 0, "outside": 0, "warn_at": 0.05, "strong_at": 0.2}
    drift = Drift.model_validate({"name": "score", "kind": "numeric", "num_values": 1000, "psi": 0.01, **shares})
    given = {
        "id": f"2/{number}",
        "version": "2",
        "begin": NOW + (number - 20) * DAY,
        "end": NOW + (number - 19) * DAY,
        "num_predictions": 1000,
        "num_labels": 800,
        "whole": True,
        "realised": Estimate(value=0.7 + number / 1000, low=0.68, high=0.72),
        "estimated": 0.71,
        "predictions": [drift],
        "features": [drift.model_copy(update={"name": "distance", "level": "warn", "psi": 0.09})],
        "state": "green",
        "reason": "as at its promotion",
    }
    return WindowReport.model_validate({**given, **told})


def findings(*windows: WindowReport, **told: Any) -> MonitoringReport:
    given = {
        "project": "flights",
        "at": NOW - 60,
        "champion": "2",
        "metric": "roc_auc",
        "direction": "maximize",
        "verdict": Estimate(value=0.73, low=0.72, high=0.74),
        "windows": windows,
        "num_predictions": 1000 * len(windows),
        "reason": "roc_auc holds",
    }
    return MonitoringReport.model_validate({**given, **told})


def version(number: str, verdict: Verdict | None, **tags: str) -> RegisteredVersion:
    return RegisteredVersion(
        number=number, tags={f"loopline.{name}": text for name, text in tags.items()}, verdict=verdict
    )


def facts(**told: Any) -> ProjectFacts:
    """A project whose champion, version 2, stands, and whose challenger, version 3, lost; its light is on."""
    moves = [
        ChampionMove(
            number=2,
            action="promote",
            before="1",
            after="2",
            at=NOW - 3 * DAY,
            reason="Promoted. Better; sample: enough",
        ),
        ChampionMove(number=1, action="promote", before=None, after="1", at=NOW - 9 * DAY, reason="First model"),
    ]
    lost = verdict(
        champion_id="2",
        difference=Difference(value=-0.01, low=-0.02, high=0.001),
        reasons=["Kept. It lost."],
        decision="keep",
    )
    given: dict[str, Any] = {
        "name": "flights",
        "folder": "/srv/ml/projects/flights",
        "champion": version("2", verdict(), metric="roc_auc=0.73", dataset="d41d8.dir", code="c0ffee12345678"),
        "challenger": version("3", lost, metric="roc_auc=0.72"),
        "previous": "1",
        "moves": moves,
        "loop": LastLoop(state="finished", loop_id="flights-20270101-030000-ab12", began=NOW - 7200),
        "pages": ["card", "monitor"],
    }
    made = ProjectFacts.model_validate({**given, **told})
    return made.model_copy(update={"light": light(made)})


def workspace(*projects: ProjectFacts, **told: Any) -> Overview:
    disk = DiskUsage(free_bytes=50 * 10**9, total_bytes=100 * 10**9)
    given: dict[str, Any] = {
        "workspace": "/srv/ml",
        "at": NOW,
        "light": workspace_light(list(projects), told.get("services", {}), disk),
        "services": {},
        "disk": disk,
        "stores": [],
        "projects": projects,
    }
    return Overview.model_validate({**given, **told})
