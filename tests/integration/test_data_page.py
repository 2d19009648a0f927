"""The pages of the data in a browser: by column, side by side, on a phone and in the dark, without rows where asked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest

from models.data.prepare import prepare
from models.files import Hashes, write_json, write_text
from models.pipeline.records import StepRecord
from models.project_spec.reader import read_spec
from models.sources.read import write_table
from tasks.gc import project_files
from tasks.gc.snapshot import take
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.loop_pages import data_file
from tasks.state.step_records import StepRecords
from tasks.steps.profile import keep_profile
from tests.chromium import chromium, serious
from tests.integration.test_links import bearer
from tests.integration.test_page import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = "<script>alert(1)</script>"
OLD, NEW = "0" * 32 + ".dir", "1" * 32 + ".dir"
SPEC = "name: tiny\ndata: {source: data.csv, target: y, id: code}\n"


class StepCacheOfFiles(NamedTuple):
    records: StepRecords
    hashes: Hashes


class LoopOfFiles:
    """What `keep_profile` reads of a loop, without one."""

    epoch = 0

    def __init__(self, workspace: Workspace) -> None:
        self.project = workspace.project("tiny")
        self.spec = read_spec(self.project.spec_path)
        self.state = workspace.state / "projects" / "tiny"
        records = StepRecords(self.state, workspace.root)
        self.step_cache = StepCacheOfFiles(records, Hashes(workspace.cache / "hashes.json"))
        self.done: dict[str, StepRecord] = {}

    def finish(self, step: str, result: dict[str, Any], *paths: Path) -> StepRecord:
        cache = self.step_cache
        outputs = {cache.records.name(path): cache.hashes.of(path) for path in paths}
        digest, key = f"d{result}", f"{step}{result}"
        record = StepRecord(
            step=step, key=key, parts={}, outputs=outputs, digest=digest, result=result, loop_id="tiny-1", finished=1e9
        )
        self.done[step] = record
        cache.records.save(record)
        return record


def version(workspace: Workspace, data_hash: str, num: int, shift: int) -> LoopOfFiles:
    """Version some rows as the steps do, but by another hash than DVC's."""
    import pyarrow as pa

    loop = LoopOfFiles(workspace)
    rows: dict[str, Any] = {
        "code": [f"c{number}" for number in range(shift, shift + num)],
        "x": [float(number % 10 + shift) for number in range(num)],
        "y": ["no" if number % 3 else "yes" for number in range(num)],
    }
    if shift:
        rows[EVIL] = [EVIL if number % 2 else "other" for number in range(num)]
    project = loop.project
    write_table(pa.table(rows), project.raw)
    prepare(project.raw, loop.spec, project.folder, project.prepared)
    loop.finish("ingest", {"rows": num, "is": data_hash}, project.raw)
    loop.finish("prepare", {"is": data_hash}, *sorted(project.prepared.iterdir()))
    report = project.folder / f"report-{num}.json"
    failed = {"expectation": "column_values_to_be_unique", "column": "x", "success": False, "severity": "warn"}
    write_json(report, {"stage": "raw", "results": [{**failed, "unexpected_count": num, "examples": [7.0, EVIL]}]})
    loop.finish("validate-raw", {"is": data_hash}, report)
    result = {"prepared": data_hash, "raw": f"raw{data_hash}", "rows": {"raw_rows": num}, "schema": [{}] * len(rows)}
    keep_profile(loop, loop.finish("version", result))  # type: ignore[arg-type]
    return loop


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace with two versions of the data of one project."""
    before = dict(os.environ)
    workspace = Workspace(tmp_path_factory.mktemp("data-page"))
    workspace.make()
    stores.configure(workspace)
    folder = workspace.root / "projects" / "tiny"
    folder.mkdir(parents=True)
    (folder / "project.yaml").write_text(SPEC)
    version(workspace, OLD, 300, 0)
    version(workspace, NEW, 360, 60)
    yield workspace
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def test_data_is_seen_compared_and_hidden_by_a_browser(place: Workspace, browser: Browser) -> None:
    with serving(place) as port:
        base = f"http://127.0.0.1:{port}"
        page = browser.new_page(
            viewport={"width": 390, "height": 844}, color_scheme="dark", extra_http_headers=bearer(place)
        )
        errors: list[str] = []
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.goto(f"{base}/")
        page.get_by_role("link", name="Data", exact=True).click()
        for address in ("/data", "/data?project=tiny"):
            page.goto(base + address)
            assert page.get_by_role("link", name=NEW[:8]).is_visible()
        assert serious(page) == []
        page.get_by_role("link", name=NEW[:8]).click()
        assert page.get_by_text("Counted in all 360 prepared rows.").is_visible()
        assert page.get_by_text("360 rows break it.").is_visible()
        assert page.get_by_text(EVIL, exact=True).first.is_visible()
        assert page.locator("svg.bars").count() == 4
        assert page.get_by_role("region", name="sample rows").get_by_text("c419").is_visible()
        assert serious(page) == []
        page.get_by_label("Compare with").select_option(OLD)
        page.get_by_role("button", name="Compare").click()
        page.wait_for_url(f"**/data/{NEW}?against={OLD}")
        assert [cell.inner_text() for cell in page.locator("dd").all()] == ["120", "60", "240"]
        assert page.get_by_text("came", exact=True).last.is_visible()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
        assert errors == []
        write_text(place.project("tiny").spec_path, SPEC.replace("id: code", "id: code, show_rows: false"))
        page.goto(f"{base}/data/{NEW}")
        assert page.get_by_text("data.show_rows: false").is_visible()
        assert "c419" not in page.content()
        write_text(place.project("tiny").spec_path, SPEC)


def test_only_hashes_that_records_name_have_a_page(place: Workspace) -> None:
    with serving(place) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=bearer(place)) as client:
        assert client.get(f"/data/{OLD}").status_code == 200
        assert client.get(f"/data/raw{OLD}").headers["location"] == f"/data/{OLD}"
        for wrong in ("2" * 32, "%25", "tiny", "..%2f..", f"{OLD}?against=nothing", f"{OLD}/raw.parquet", f"{OLD}/x"):
            assert client.get(f"/data/{wrong}").status_code == 404, wrong
        assert client.get("/data?project=nobody").status_code == 404
        assert httpx.get(f"http://127.0.0.1:{port}/data/{OLD}").status_code == 401


def test_what_the_data_is_like_goes_with_the_data(place: Workspace) -> None:
    state = place.state / "projects" / "tiny"
    path = data_file(state, "gone")
    write_text(path, "{}")
    snapshot = take(place, ["tiny"], {}, {})
    listed = {Path(item.name).stem: item.reason for item in project_files.files_of("data pages")(snapshot)}
    assert listed["gone"] == ""
    assert listed[NEW]


def test_it_is_counted_once_and_again_where_rows_may_not_be_shown_any_more(place: Workspace) -> None:
    loop = LoopOfFiles(place)
    path = data_file(loop.state, OLD)
    marked = path.read_text().replace('"source":"data.csv"', '"source":"as it was"')
    write_text(path, marked)
    loop = version(place, OLD, 300, 0)
    assert path.read_text() == marked
    loop.spec = loop.spec.model_copy(update={"data": loop.spec.data.model_copy(update={"show_rows": False})})
    keep_profile(loop, loop.done["version"])  # type: ignore[arg-type]
    assert json.loads(path.read_text())["sample"] == []
    assert not re.search(r'"c\d+"', path.read_text())
