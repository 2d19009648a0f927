"""Names that a package of the guide gives to its rows, installed as pip does: the wheel's content on the path."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from models.errors import UsageError
from models.files import Hashes
from models.metrics.metrics import resolve_metric
from models.pipeline.steps import BY_NAME
from models.sources.schemes import scheme_of
from models.sources.source import Source
from tasks.host.workspace import Project, Workspace
from tasks.loop.step_cache import StepCache
from tasks.operations.doctor import examine
from tasks.operations.registered import registered
from tasks.operations.row_suites import check_row
from tasks.ranks.places import checked_spec
from tests.conftest import MakeOnce, MakeProject

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "rows-from-packages.md"
BLOCK = re.compile(r"^```(?:toml|python|yaml)\n# (?P<place>\S+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def wheel(once: MakeOnce) -> Path:
    """The wheel of the guide's package, built from the page."""

    def build(folder: Path) -> None:
        for block in BLOCK.finditer(PAGE.read_text()):
            path = folder / block["place"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["code"])
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=folder / "acme-costs", check=True, capture_output=True)

    (path,) = once("entry_points", build).glob("*.whl")
    return path


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which it is installed, which is on the path."""
    site = tmp_path / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    monkeypatch.syspath_prepend(site)
    yield site
    sys.modules.pop("acme_costs", None)


@pytest.fixture
def trips(installed: Path, workspace: Workspace, make_project: MakeProject, wheel: Path) -> Project:
    project = make_project("trips")
    project.spec_path.write_text((wheel.parent / "projects" / "trips" / "project.yaml").read_text())
    return project


def declare(site: Path, group: str, name: str, reference: str) -> None:
    """Install another distribution that declares one entry point."""
    folder = site / "other-3.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 3.0\n")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {reference}\n")


def test_a_name_is_its_reference_and_the_package_version_is_in_the_keys(trips: Project) -> None:
    spec = checked_spec(trips)
    assert (spec.data.source, spec.goal.metric, spec.model.net) == (
        "acme_costs:SOURCE",
        "acme_costs:METRIC",
        "acme_costs:FAMILY",
    )
    metric = resolve_metric(str(spec.goal.metric), "regression", trips.folder)
    assert metric.value(np.array([10.0, 10.0]), np.array([9.0, 11.0]), np.array([1.0, 0.0])) == 5.0
    cache = StepCache(trips, spec)
    for step in ("ingest", "search", "judge"):
        parts = cache.own_parts(BY_NAME[step])
        assert parts.get("library:acme_costs") == "1.2.0", step
    source = Source(spec.data.source, trips.folder)
    hashes = Hashes(trips.folder / "hashes.json")
    assert scheme_of(spec.data.source).identity(source, hashes, None) == {"source:acme_costs:SOURCE": 400}


def test_the_doctor_lists_names_with_their_packages(trips: Project) -> None:
    rows = registered(trips.workspace)
    assert "; of packages: late (acme-costs 1.2.0); of projects: acme_costs:METRIC (trips)" in rows["metrics"]
    assert "; of packages: trips (acme-costs 1.2.0)" in rows["sources"]
    assert "; of packages: average (acme-costs 1.2.0)" in rows["families"]
    assert "names" not in {finding.what for finding in examine(trips.workspace)}


@pytest.mark.parametrize("row", ["METRIC", "SOURCE", "FAMILY"])
def test_the_rows_of_the_guide_pass_the_suites(row: str, installed: Path, workspace: Workspace) -> None:
    assert installed.is_dir()
    outcomes = [*check_row(f"acme_costs:{row}", workspace.root)]
    assert len(outcomes) >= 2
    assert [outcome for outcome in outcomes if outcome.error] == []


@pytest.mark.parametrize(
    ("group", "name", "key", "reason"),
    [
        ("loopline.metrics", "late", "goal.metric", "is a name of acme-costs 1.2.0 and other 3.0"),
        ("loopline.metrics", "mae", "goal.metric", "is Loopline's own, and a name of other 3.0"),
        ("loopline.families", "trees", "model.net", "is Loopline's own, and a name of other 3.0"),
    ],
)
def test_a_name_of_two_is_refused_by_the_spec_and_by_the_doctor(
    group: str, name: str, key: str, reason: str, trips: Project, installed: Path
) -> None:
    declare(installed, group, name, "other:METRIC")
    block, _, field = key.partition(".")
    spec = re.sub(rf"{block}: .*", f"{block}: {{{field}: {name}}}", trips.spec_path.read_text())
    trips.spec_path.write_text(spec)
    with pytest.raises(UsageError, match=rf"project.yaml:\d: {key}: {name!r} {reason} .*: write "):
        checked_spec(trips)
    (finding,) = [finding for finding in examine(trips.workspace) if finding.what == "names"]
    assert (finding.state, reason in finding.detail) == ("wrong", True)
    assert finding.cure.startswith("write ")


def test_a_source_and_a_file_of_one_name_are_refused(trips: Project) -> None:
    (trips.folder / "trips").mkdir()
    with pytest.raises(UsageError, match=r"data\.source: 'trips' is a file beside the spec, and a name of acme-costs"):
        trips.spec()


def test_an_override_may_say_a_name(trips: Project) -> None:
    assert trips.spec(["goal.metric=late"]).goal.metric == "acme_costs:METRIC"
