"""The overview page as a real server: who gets in, what is shown, what the buttons do."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from models.files import sha256, write_text
from models.judge.worst_rows import WORST_FILE, WorstExample, WorstExamples
from models.serving.registry import FILES
from models.triggers.signal import Decision, Signal
from tasks.host import stores
from tasks.host.http_guard import OVERVIEW_HOST, OVERVIEW_PROXY, token_path
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.mlflow.registry_reader import aliased
from tests import warm
from tests.integration.conftest import ROOT
from tests.served_models import preparation_of
from tests.stored_events import stored_events

SPEC = "name: {name}\ndescription: '<script>alert(1)</script>'\ndata: {{source: data.csv, target: y}}\n"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Browser:
    """Speaks plain HTTP, sends paths as they are, and keeps one cookie."""

    port: int
    cookie: str = ""
    host: str = field(default="")

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": self.host or f"127.0.0.1:{self.port}", "Accept": "text/html", **headers}
        sent |= {"Cookie": self.cookie} if self.cookie else {}
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            content = (body or "").encode()
            for name, value in {**sent, "Content-Length": str(len(content))}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            got = connection.getresponse()
            found = Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read().decode())
        if "set-cookie" in found.headers:
            self.cookie = found.headers["set-cookie"].partition(";")[0]
        return found

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        return self.ask("POST", path, urllib.parse.urlencode(fields), **FORM, **headers)

    def log_in(self, token: str) -> Browser:
        form = fields_of(self.get("/login").text)
        assert self.post("/login", {**form, "secret": token}).status == 303
        return self

    def press(self, path: str, **more: str) -> Answer:
        """Open the page that asks again, and say yes."""
        asked = self.get(path)
        assert asked.status == 200, asked.text
        return self.post(path, {**fields_of(asked.text), **more})


def fields_of(html: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', html))


@pytest.fixture(scope="module")
def place(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace with a project of three versions, 2 the champion and 3 the challenger, and one broken project."""
    before = dict(os.environ)
    made = Workspace(tmp_path_factory.mktemp("page"))
    made.make()
    shutil.copytree(empty_store, made.state / "mlflow")
    stores.configure(made)
    for name in ("tiny", "other"):
        (made.root / "projects" / name).mkdir(parents=True)
        (made.root / "projects" / name / "project.yaml").write_text(SPEC.format(name=name))
        (made.root / "projects" / name / "data.csv").write_text("x,y\n1,a\n")
    (made.root / "projects" / "broken").mkdir()
    (made.root / "projects" / "broken" / "project.yaml").write_text("data: {sorce: x}\n")
    (made.state / "projects" / "tiny").mkdir(parents=True)
    state = made.state / "projects" / "tiny"
    (state / "reports").mkdir()
    (state / "reports" / "validation-raw.html").write_text("<h1>the data</h1>")
    link = (state / "reports" / "validation-raw.html").resolve().as_uri()
    (state / "card.html").write_text(f'<h1>the card</h1><a href="{link}">data</a>')
    registry = open_registry(made, "tiny")
    run = client().create_run(experiment_id(client(), made, "tiny")).info
    for number in ("1", "2", "3"):
        tags = {"loopline.metric": "auc=0.7", **(stored_files(made) if number == "1" else {})}
        registry.create(f"k{number}", f"{run.artifact_uri}/m", run.run_id, None, tags, "")
    registry.promote("1", None, reason="First")
    registry.promote("2", "1", reason="Better")
    registry.judge("3", {})
    yield made
    os.environ.clear()
    os.environ.update(before)


def stored_files(workspace: Workspace) -> dict[str, str]:
    """Files of version 1 as the cache holds them; return the tag with their hashes."""
    worst = WorstExamples(loss="bits", num_samples=9, examples=[WorstExample(row=7, loss=2.5, values={"<b>": "<i>"})])
    folder = workspace.cache / "models" / "tiny" / "1"
    write_text(folder / WORST_FILE, worst.model_dump_json())
    write_text(folder / "spec.json", '{"train": {"lr": 0.125}}')
    return {FILES: json.dumps({path.name: sha256(path) for path in folder.iterdir()})}


@contextlib.contextmanager
def serving(workspace: Workspace, *arguments: str, is_cold: bool = False, port: int = 0) -> Iterator[int]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that ended just now leaves its port so
        probe.bind(("127.0.0.1", port))
        port = int(probe.getsockname()[1])
    options = ["-P"] if is_cold else []
    command = [*options, "-m", "tasks.dashboard", str(workspace.root), "--port", str(port), *arguments]
    log = workspace.root / f"page-{port}.log"
    with log.open("wb") as printing:
        process = warm.start_python(command, dict(os.environ), ROOT, printing)
    try:
        wait_for(port, process, log)
        yield port
    finally:
        process.terminate()
        process.wait(30)
        assert "Traceback" not in log.read_text()


def wait_for(port: int, process: warm.Started, log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            assert Browser(port).get("/health").text == '{"status":"ok"}'
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError("the page did not come up")


@pytest.fixture(scope="module")
def served(place: Workspace) -> Iterator[int]:
    with serving(place) as port:
        yield port


@pytest.fixture
def browser(served: int, token: str) -> Browser:
    return Browser(served).log_in(token)


@pytest.fixture
def token(place: Workspace, served: int) -> str:
    return token_path(place).read_text().strip()


def test_the_server_that_shows_pages_stays_small(place: Workspace) -> None:
    import psutil

    with serving(place, is_cold=True) as port:
        Browser(port).log_in(token_path(place).read_text().strip()).get("/")
        (process,) = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
        ]
        maps = Path(f"/proc/{process}/maps").read_text()
    assert not {"numpy", "pandas", "torch", "pyarrow"} & {
        part for line in maps.splitlines() for part in line.rpartition(" ")[2].split("/")
    }


def test_the_first_page_shows_every_project_and_escapes_what_users_wrote(browser: Browser) -> None:
    shown = browser.get("/")
    assert shown.status == 200
    assert all(f"/projects/{name}" in shown.text for name in ("tiny", "other", "broken"))
    assert "data.source: missing" in shown.text
    page = browser.get("/projects/tiny")
    assert re.search(r"version</dt><dd><a [^>]*>2<", page.text)
    assert "&lt;script&gt;alert(1)" in page.text
    assert "<script" not in shown.text + page.text
    assert not re.search(r'(?:src|href)="https?://(?!127\.0\.0\.1)', shown.text + page.text)
    assert "Better" in page.text
    assert "data.sorce: unknown key" in browser.get("/projects/broken").text


def test_each_version_has_an_address_of_its_own(browser: Browser) -> None:
    page = browser.get("/projects/tiny")
    numbers = ("1", "2", "3")
    assert {f"/projects/tiny/versions/{number}" for number in numbers} <= set(re.findall(r'href="([^"]*)"', page.text))
    shown = {number: browser.get(f"/projects/tiny/versions/{number}") for number in numbers}
    assert {number: version.status for number, version in shown.items()} == dict.fromkeys(numbers, 200)
    assert "the champion</dd>" in shown["2"].text
    assert "Better" in shown["2"].text
    assert "the challenger</dd>" in shown["3"].text
    listed = browser.get("/projects/tiny/versions").text
    assert re.findall(r'versions/(\d)"', listed) == ["3", "2", "1"]
    assert browser.get("/projects/tiny/versions/4").status == 404
    both = browser.get("/projects/tiny/versions/2?against=1")
    assert (both.status, "the same lock file" in both.text) == (200, True)
    assert browser.get("/projects/tiny/versions/2?against=4").status == 404
    assert browser.get("/projects/tiny/versions/2/files/model.onnx").status == 404
    assert browser.get("/projects/tiny/versions/1/files/spec.json").text == '{"train": {"lr": 0.125}}'
    assert browser.get(f"/projects/tiny/versions/1/files/{WORST_FILE}").status == 404


def test_worst_rows_follow_the_spec_of_today(browser: Browser, place: Workspace) -> None:
    path, worst = place.project("tiny").spec_path, "/projects/tiny/versions/1/worst"
    before = path.read_text()
    assert {"&lt;b&gt;", "&lt;i&gt;"} <= set(re.findall(r"<t[hd]>([^<]*)<", browser.get(worst).text))
    try:
        for spec in (before.replace("target: y", "target: y, show_rows: false"), "data: ["):
            path.write_text(spec)
            shown = browser.get(worst)
            assert (shown.status, "2.5" in shown.text, "&lt;i&gt;" in shown.text) == (200, True, False)
    finally:
        path.write_text(before)
    assert "They were not stored with this version" in browser.get("/projects/tiny/versions/2/worst").text


def test_an_open_release_page_gets_its_changes(browser: Browser) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", browser.port, timeout=60)) as connection:
        connection.request("GET", "/projects/tiny/releases/events", headers={"Cookie": browser.cookie})
        answer = connection.getresponse()
        assert (answer.readline(), answer.readline()[:6]) == (b"event: loop\n", b"data: ")


def test_answers_forbid_scripts_and_frames_and_say_little_of_the_server(browser: Browser) -> None:
    headers = browser.get("/").headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers
    assert {"httponly", "samesite=lax"} <= set(
        Browser(browser.port).get("/login").headers["set-cookie"].lower().split("; ")
    )


def test_a_name_that_is_not_ours_is_refused(served: int) -> None:
    assert Browser(served, host="evil.example").get("/").status == 421


def test_the_stylesheet_fetches_nothing(browser: Browser) -> None:
    style = browser.get("/style.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_report_pages_are_served_from_the_known_list_in_a_sandbox(browser: Browser) -> None:
    card = browser.get("/projects/tiny/pages/card")
    assert card.text == '<h1>the card</h1><a href="validation-raw">data</a>'
    assert browser.get("/projects/tiny/pages/validation-raw").text == "<h1>the data</h1>"
    assert "sandbox" in card.headers["content-security-policy"]
    assert browser.get("/projects/tiny/pages/monitor").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/projects/../../../../etc/passwd",
        "/projects/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/projects/tiny/pages/..%2f..%2f..%2foverview%2ftoken",
        "/projects/tiny/pages/../../../overview/token",
        "/projects/tiny/pages/%2fetc%2fpasswd",
        "/projects/tiny/pages/card.html",
        "/projects/%00",
        "/projects/tiny/loop.lock",
        "/.loopline/overview/token",
        "/style.css/../../security.py",
    ],
)
def test_no_request_leads_to_a_file(browser: Browser, token: str, path: str) -> None:
    answer = browser.get(path)
    assert answer.status in (400, 404)
    assert token not in answer.text
    assert "root:" not in answer.text
    assert "Traceback" not in answer.text


def test_a_button_asks_again_and_without_its_token_nothing_happens(browser: Browser) -> None:
    asked = browser.get("/projects/tiny/rollback")
    assert "Give tiny back to version 1?" in asked.text
    fields = fields_of(asked.text)
    assert fields["champion"] == "2"
    refusals = [
        browser.post("/projects/tiny/rollback", {"champion": "2"}),
        browser.post("/projects/tiny/rollback", {**fields, "token": "0" * 64}),
        browser.post("/projects/tiny/promote", {**fields, "version": "3"}),
        browser.post("/projects/tiny/rollback", fields, Origin="http://evil.example"),
        Browser(browser.port).post("/projects/tiny/rollback", fields),
    ]
    assert [refusal.status for refusal in refusals] == [403, 403, 403, 403, 401]
    champion = aliased("tiny")
    assert champion is not None
    assert champion.number == "2"


def test_promote_and_roll_back_by_compare_and_swap(browser: Browser, place: Workspace) -> None:
    stale = browser.get("/projects/tiny/rollback")
    done = browser.press("/projects/tiny/promote", reason="Ada\nsaid so")
    assert (done.status, "Version 3 is the champion" in done.text) == (200, True)
    assert open_registry(place, "tiny").journal()[-1].reason == "Ada said so"
    late = browser.post("/projects/tiny/rollback", fields_of(stale.text))
    assert late.status == 409
    assert "the champion is version 3, not 2" in late.text
    gone = browser.get("/projects/tiny/promote")
    assert (gone.status, "nothing to do" in gone.text) == (409, True)
    back = browser.press("/projects/tiny/rollback")
    assert "Version 2 is the champion again" in back.text
    champion = aliased("tiny")
    assert champion is not None
    assert champion.number == "2"


def test_a_trial_is_asked_with_what_it_means_and_wrong_values_are_named(browser: Browser) -> None:
    page = browser.get("/projects/tiny/releases")
    assert (page.status, "No server of this project has answered yet" in page.text) == (200, True)
    assert re.findall(r"<option>(\d)</option>", page.text) == ["3", "1"] * 2
    asked = browser.get("/projects/tiny/canary?version=3&percent=12.5")
    assert "Try version 3 of tiny for 12.5 % of the requests?" in asked.text
    assert {"version": "3", "percent": "12.5"}.items() <= fields_of(asked.text).items()
    for wrong in ("", "nan", "abc"):  # a form that was written by hand begins nothing
        assert browser.post("/projects/tiny/canary", {**fields_of(asked.text), "percent": wrong}).status == 422
    for query, words in {
        "canary?version=3&percent=100": "percent above 0 and below 100",
        "canary?version=2&percent=5": "is the champion and answers already",
        "shadow?version=<b>": "expected the number of a version",
    }.items():
        refused = browser.get(f"/projects/tiny/{query}")
        assert (refused.status, words in refused.text) == (422, True), query
    assert [browser.get(f"/projects/tiny/{action}").status for action in ("end", "return")] == [409, 409]


def queued(place: Workspace) -> list[dict[str, object]]:
    return [event for event in stored_events(place) if event["name"] == "loopline.person.asked"]


def test_a_wish_to_retrain_waits_for_prefect(browser: Browser, place: Workspace) -> None:
    done = browser.press("/projects/other/retrain", reason="the season changed")
    assert "The request is stored" in done.text
    (event,) = [event for event in queued(place) if event["text"] == "the season changed"]
    assert event["project"] == "other"


def test_a_program_wishes_with_the_token_alone_and_once_an_id(browser: Browser, place: Workspace, token: str) -> None:
    bearer = {"Authorization": f"Bearer {token}"}
    body = json.dumps({"reason": "a batch came", "id": "batch-7"})
    browser.get("/")
    assert browser.ask("POST", "/trigger/other", body).status == 401
    for _ in range(2):
        answer = browser.ask("POST", "/trigger/other", body, **bearer)
        assert (answer.status, json.loads(answer.text)["signal"]) == (202, "person-batch-7")
    wishes = {event["payload"]["signal"]["id"] for event in queued(place)}  # type: ignore[index]
    assert "person-batch-7" in wishes
    assert browser.ask("POST", "/trigger/nobody", body, **bearer).status == 404
    for wrong in ("[1]", "{", '{"reason": 3}', "[" * 5000):
        answer = browser.ask("POST", "/trigger/other", wrong, **bearer)
        assert (answer.status, "error" in json.loads(answer.text)) == (400, True)


def test_labels_are_taken_in_all_or_none(browser: Browser, place: Workspace, token: str) -> None:
    bearer = {"Authorization": f"Bearer {token}"}
    prepared = place.project("other").prepared
    prepared.mkdir(parents=True)
    preparation_of("binary").save(prepared)
    rows = [{"id": "007", "label": "yes"}, {"id": "8", "label": "no"}, {"id": "9", "label": None}]
    assert browser.ask("POST", "/labels/other", json.dumps(rows)).status == 401
    taken = browser.ask("POST", "/labels/other", json.dumps(rows), **bearer)
    assert (taken.status, json.loads(taken.text)) == (
        200,
        {"taken": 2, "corrected": 0, "repeated": 0, "waiting": 2, "empty": 1},
    )
    csv = {**bearer, "Content-Type": "text/csv; charset=utf-8"}
    again = json.loads(browser.ask("POST", "/labels/other", "id,y\n007,yes\n8,yes\n", **csv).text)
    assert (again["repeated"], again["corrected"]) == (1, 1)
    for body, kind in (('[{"id": "1", "label": "maybe"}]', {}), ("id,y\n1,maybe\n", csv), ("\x00", csv)):
        refused = browser.ask("POST", "/labels/other", body, **{**bearer, **kind})
        assert (refused.status, "error" in json.loads(refused.text)) == (422, True), refused.text
    for body in ("{}", "[]", "[3]", "x"):
        assert browser.ask("POST", "/labels/other", body, **bearer).status == 400
    mixed = json.dumps([{"id": "1", "label": "yes"}, {"id": 2, "label": "no"}])
    assert browser.ask("POST", "/labels/other", mixed, **bearer).status == 422
    unprepared = browser.ask("POST", "/labels/tiny", json.dumps(rows), **bearer)
    assert (unprepared.status, "loopline run" in unprepared.text) == (422, True)
    assert browser.ask("POST", "/labels/other", "x" * (16 * 1024 * 1024 + 1), **bearer).status == 413


def test_a_question_is_answered_or_said_why_not(browser: Browser, place: Workspace) -> None:
    asks = Signal(id="new_data-1", kind="new_data", at=time.time(), reason="9,000 rows came")
    run = "6f9619ff-8b86-4011-b42d-00c04fc964ff"
    question = Decision(signal=asks, at=time.time(), action="ask", reasons=["9,000 rows came"], flow_run=run)
    decisions.record(place.state / "projects" / "other", question)
    assert "Shall it be trained?" in browser.get("/projects/other").text
    answer = browser.press("/projects/other/approve")
    assert answer.status == 409
    assert "loopline up" in answer.text
    stale = browser.get("/projects/other/refuse")
    decisions.record(place.state / "projects" / "other", question.model_copy(update={"action": "wait", "by": "Ada"}))
    assert "answered meanwhile" in browser.post("/projects/other/refuse", fields_of(stale.text)).text


def test_elsewhere_than_loopback_the_token_is_asked(
    place: Workspace, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERVIEW_HOST, "0.0.0.0")
    monkeypatch.setenv(OVERVIEW_PROXY, "elsewhere")
    with serving(place, "--name", "ml.example.org") as port:
        browser = Browser(port)
        asked = browser.get("/projects/tiny")
        assert (asked.status, asked.headers["location"]) == (303, "/login?next=/projects/tiny")
        assert browser.post("/projects/tiny/rollback", {}).status == 401
        form = browser.get("/login?next=/projects/tiny")
        assert token not in form.text
        fields = fields_of(form.text)
        assert browser.post("/login", {**fields, "secret": "wrong"}).status == 403
        entered = browser.post("/login", {**fields, "secret": token})
        assert (entered.status, entered.headers["location"]) == (303, "/projects/tiny")
        inside = browser.get("/projects/tiny")
        assert "Roll back to version" in inside.text
        assert browser.post("/logout", fields_of(inside.text)).status == 303
        assert browser.get("/").status == 303
        assert Browser(port).get("/", Authorization=f"Bearer {token}").status == 200
        assert Browser(port, host="evil.example").get("/").status == 421
        assert Browser(port, host="ml.example.org").get("/health").status == 200
