"""Versions of every kind of data are tried on their pages by a browser, and their worst rows are seen there."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from PIL import Image

from models.files import sha256, write_text
from models.judge.worst_rows import WORST_FILE, WorstExample, WorstExamples
from models.serving.registry import FILES
from models.validation.data_profile import DataProfile, SampleRow
from tasks.host import database, stores
from tasks.host.workspace import Workspace
from tasks.loop.loop_pages import data_file
from tasks.state import versions
from tasks.state.versions import StoredVersion
from tests.chromium import STRUCTURE, VIEWS, chromium, serious
from tests.integration.test_links import bearer, photograph
from tests.integration.test_page import fields_of, serving
from tests.served_models import write_served
from tests.wide import wide

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPEC = "name: {name}\ndata: {{source: data.csv, target: y}}\n"
TASKS = {"table": "binary", "picture": "image", "series": "series", "text": "language"}
EVIL = "<script>alert(1)</script>"


def png(level: int, width: int = 3) -> bytes:
    """Return a picture of one level but for a bright pixel."""
    stream = io.BytesIO()
    picture = Image.new("L", (width, 2), level)
    picture.putpixel((1, 1), 255)
    picture.save(stream, "PNG")
    return stream.getvalue()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


WORST = {
    "table": [WorstExample(row=7, loss=0.5, truth="yes", predicted="no", values={"x": 0.25, "c": EVIL})],
    "picture": [
        WorstExample(row=row, loss=1 / row, truth="yes", predicted="no", picture=encoded(png(row)))
        for row in range(1, 101)
    ],
    "series": [WorstExample(loss=2.5, truth="3", predicted="0.5", values={"x": 1.5, "y": None})],
    "text": [WorstExample(loss=9.5, values={"line": f"{EVIL}\nand so on"})],
}
SAMPLES = {
    "table": [SampleRow(number=17, split="test", cells=["2.5", "w"])],
    "picture": [SampleRow(number=3, split="train", cells=["yes"], picture=encoded(png(90)))],
}
COLUMNS = {"table": ["x", "c"], "picture": ["y"]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace with a version of each kind of data; nothing is trained."""
    before = dict(os.environ)
    workspace = Workspace(tmp_path_factory.mktemp("playground"))
    workspace.make()
    stores.configure(workspace)
    for name, task in TASKS.items():
        write_text(workspace.root / "projects" / name / "project.yaml", SPEC.format(name=name))
        folder = workspace.cache / "models" / name / "1"
        write_served(folder, task)
        worst = WorstExamples(loss="what is lost", num_samples=len(WORST[name]), examples=WORST[name])
        write_text(folder / WORST_FILE, worst.model_dump_json())
        hashes = {path.name: sha256(path) for path in folder.iterdir()}
        tags = {FILES: json.dumps(hashes), "loopline.dataset": f"data-{name}"}
        with database.writing(workspace.state) as connection:
            versions.save(connection, name, StoredVersion("1", "", folder.as_uri(), tags, 1e9))
        rows = {"sample": SAMPLES.get(name, []), "shown_columns": COLUMNS.get(name, [])}
        profile = DataProfile(num_raw=1, num_prepared=1, num_counted=1, rows={}, **rows)
        write_text(data_file(workspace.state / "projects" / name, f"data-{name}"), profile.model_dump_json())
    yield workspace
    os.environ.clear()
    os.environ.update(before)


class Site(NamedTuple):
    base: str
    page: Page
    errors: list[str]
    kinds: set[str]

    def goes_to(self, path: str) -> None:
        self.page.goto(self.base + path)

    def is_fit(self) -> None:
        """The page fits a phone, and has nothing that axe-core calls serious, which looks at new kinds of elements."""
        kinds = {*self.page.evaluate(STRUCTURE)}
        assert kinds <= self.kinds or serious(self.page) == []
        self.kinds.update(kinds)
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def site(place: Workspace) -> Iterator[Site]:
    with serving(place) as port, chromium() as browser:
        page = browser.new_page(
            viewport={"width": 390, "height": 844}, color_scheme="dark", extra_http_headers=bearer(place)
        )
        errors: list[str] = []
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        yield Site(f"http://127.0.0.1:{port}", page, errors, set())


def test_a_row_is_filled_changed_and_tried_with_its_explanation(site: Site) -> None:
    page = site.page
    site.goes_to("/projects/table/versions/1")
    page.get_by_role("link", name="try it on a row").click()
    page.get_by_label("Fill from").select_option("17")
    page.get_by_role("button", name="Fill").click()
    assert (page.get_by_label("x", exact=True).input_value(), page.get_by_label("c", exact=True).input_value()) == (
        "2.5",
        "w",
    )
    page.get_by_role("button", name="Predict", exact=True).click()
    assert page.locator("dd").first.inner_text() == "yes"
    assert page.get_by_role("img", name="Probability of each class: yes").is_visible()
    assert page.get_by_role("img", name="What each column adds to the prediction").is_visible()
    site.is_fit()
    page.get_by_label("x", exact=True).fill(EVIL)
    page.get_by_role("button", name="Predict", exact=True).click()
    field = page.get_by_label("x", exact=True)
    assert (field.input_value(), field.get_attribute("aria-invalid")) == (EVIL, "true")
    assert page.get_by_text(f"row 1, column 'x': got '{EVIL}', expected a number").is_visible()
    site.is_fit()
    page.get_by_text("Several rows, as JSON").click()
    page.get_by_label("Rows", exact=True).fill('[{"x": 1, "c": "u"}, {"x": 2, "c": "new"}]')
    page.get_by_role("button", name="Predict these").click()
    assert page.get_by_role("region", name="predictions").get_by_text("yes", exact=True).count() == 2
    assert page.get_by_text("'new' is no category that the model knows").is_visible()
    assert [error for error in site.errors if "422" not in error] == []


def test_who_may_try_what_is_refused_and_what_is_hidden(place: Workspace, site: Site) -> None:
    address = "/projects/table/versions/1/try"
    with httpx.Client(base_url=site.base, headers=bearer(place), timeout=60) as client:
        form = client.get(address).text
        sent = {**fields_of(form), "cell-0": "1", "cell-1": "new"}
        assert "counts as unknown" in client.post(address, data=sent).text
        assert client.post(address, data={**sent, "token": "0" * 64}).status_code == 403
        assert httpx.get(site.base + address, timeout=60).status_code == 401
        assert client.get("/projects/table/versions/2/try").status_code == 404
        assert client.post(address, content=b"x" * (17 << 20)).status_code == 413
        path = place.project("table").spec_path
        before = path.read_text()
        try:
            write_text(path, before.replace("target: y", "target: y, show_rows: false"))
            hidden = client.get(f"{address}?row=17").text
            assert ("2.5" in hidden, "<option" in hidden, 'name="cell-1"' in hidden) == (False, False, True)
            assert "counts as unknown" not in client.post(address, data=sent).text
        finally:
            write_text(path, before)
        with database.writing(place.state) as connection:
            (stored,) = versions.read(connection, "text")
            lost = StoredVersion("2", "", (place.root / "gone").as_uri(), stored.tags, 1e9)
            versions.save(connection, "text", lost)
        gone = client.get("/projects/text/versions/2/try")
        assert (gone.status_code, "is missing in the store" in gone.text, "restore the artifacts" in gone.text) == (
            422,
            True,
            True,
        )


@pytest.mark.wide
def test_a_picture_of_the_data_or_a_file_is_tried_and_shown_back(site: Site) -> None:
    page = site.page
    site.goes_to("/projects/picture/versions/1/try")
    page.get_by_role("button", name="row 3").click()
    shown = page.get_by_role("img", name="the picture as the model sees it")
    assert shown.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [3, 2]
    assert page.get_by_role("img", name="What each part of the picture adds to probability_").is_visible()
    page.get_by_label("picture", exact=True).set_input_files(
        {"name": "a.png", "mimeType": "image/png", "buffer": png(9)}
    )
    page.get_by_role("button", name="Predict").click()
    assert shown.is_visible()
    wrong = {"name": "b.png", "mimeType": "image/png", "buffer": png(9, 40)}
    page.get_by_label("picture", exact=True).set_input_files(wrong)
    page.get_by_role("button", name="Predict").click()
    assert page.get_by_text("40 x 2 pixels, expected 3 x 2").is_visible()
    site.is_fit()


@pytest.mark.parametrize(("name", "button"), [("series", "Predict these"), wide("text", "Predict")])
def test_series_and_texts_are_tried_from_their_examples(site: Site, name: str, button: str) -> None:
    site.goes_to(f"/projects/{name}/versions/1/try")
    site.page.get_by_role("button", name=button, exact=True).click()
    assert site.page.get_by_role("heading", name="Prediction").is_visible()
    site.is_fit()


@pytest.mark.wide
def test_worst_rows_of_each_kind_are_seen(site: Site) -> None:
    page = site.page
    for name in TASKS:
        site.goes_to(f"/projects/{name}/versions/1/worst")
        site.is_fit()
        images = page.locator("ul.pictures img")
        if name == "picture":
            assert images.count() == 100
            assert images.evaluate_all("images => images.every(image => image.naturalWidth === 3)")
            assert page.get_by_text("row 100, 0.01").is_visible()
        else:
            cells = page.get_by_role("region", name="worst rows").get_by_role("cell").all_inner_texts()
            assert set(SHOWN[name]) <= set(cells)


SHOWN = {"table": ["0.5", "yes", "7", EVIL], "series": ["2.5", "1.5", "–"], "text": ["9.5", f"{EVIL} and so on"]}


@pytest.mark.soak
def test_pictures_of_answers_in_every_view(site: Site, tmp_path: Path) -> None:
    """For people to look at: PICTURES names the folder, else it is pytest's."""
    folder = Path(os.environ.get("PICTURES", tmp_path))
    buttons = {"table": "Predict", "picture": "row 3", "series": "Predict these", "text": "Predict"}
    for name, button in buttons.items():
        site.goes_to(f"/projects/{name}/versions/1/try")
        site.page.get_by_role("button", name=button, exact=True).click()
        assert site.page.get_by_role("heading", name="Prediction").is_visible()
        photograph(site.page, folder, f"try_{name}")
    assert len([*folder.rglob("try_*.png")]) == len(buttons) * len(VIEWS)
