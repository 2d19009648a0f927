"""The dashboard and the alerts name only metrics and labels that the server exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tasks.dashboard.metrics import LABELS
from tasks.dashboard.metrics import NAMES as PLATFORM_METRICS
from tasks.serve.metrics import Metrics

FOLDER = Path("infra/observability")
BUILT_IN = {"le"}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Names of samples and the labels that each may have."""
    made = Metrics()
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    found = {}
    for metric in vars(made).values():
        for one in metric.describe() if hasattr(metric, "describe") else ():
            for suffix in suffixes[one.type]:
                found[one.name + suffix] = set(metric._labelnames)
    assert len(found) > 10
    return found


def expressions(root: Path) -> Iterator[str]:
    release_state = json.loads((root / FOLDER / "serving-dashboard.json").read_text())
    for panel in release_state["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["definition"] for one in release_state["templating"]["list"] if "definition" in one)
    rules = YAML(typ="safe").load((root / FOLDER / "serving-alerts.yaml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


def test_each_metric_that_is_named_is_exported_with_its_labels(root: Path, exported: dict[str, set[str]]) -> None:
    for expression in expressions(root):
        names = re.findall(r"loopline_serve_\w+", expression)
        assert names, expression
        assert set(names) <= set(exported), expression
        labels = {label for name in names for label in exported[name]} | BUILT_IN
        by = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
        matched = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expression))
        assert by | matched <= labels, expression


def test_each_metric_of_the_server_is_looked_at(root: Path, exported: dict[str, set[str]]) -> None:
    text = "\n".join(expressions(root))
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in exported}
    assert [name for name in sorted(families) if name not in text] == []


def test_each_alert_says_what_is_wrong_and_how_bad(root: Path) -> None:
    rules = YAML(typ="safe").load((root / FOLDER / "serving-alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"], rule
            assert rule["labels"]["severity"] in ("page", "ticket"), rule


def test_the_panels_of_the_dashboard_do_not_overlap(root: Path) -> None:
    release_state = json.loads((root / FOLDER / "serving-dashboard.json").read_text())
    places = set()
    for panel in release_state["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_the_platforms_alerts_name_its_metrics_and_labels(root: Path) -> None:
    (group,) = YAML(typ="safe").load((root / FOLDER / "platform-alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(re.findall(r"loopline_\w+", rule["expr"])) <= set(PLATFORM_METRICS)
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= set(LABELS)
