"""A file becomes a project, and its spec is changed, by forms alone: what is written, and what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import subprocess
from collections import namedtuple
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import UploadFile

from models.errors import StoreError, UsageError
from tasks.dashboard import new_project, repository, spec_edit, uploads
from tasks.dashboard.app import application
from tasks.dashboard.drafting import VARIABLES, DraftRequest, carry_out, refuse_address
from tasks.dashboard.guard import UPLOAD_BYTES
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace

ROWS = "person,age,plan,left\n" + "".join(
    f"p{row:03d},{20 + row % 50},{'free' if row % 3 else 'pro'},{'yes' if row % 7 < 3 else 'no'}\n"
    for row in range(120)
)
BASE = "http://127.0.0.1:4300"


class Browser:
    """Asks the application in this process, and keeps its cookies."""

    def __init__(self, workspace: Workspace) -> None:
        self._app = application(workspace, "127.0.0.1")
        self._token, self._cookies = token_path(workspace).read_text().strip(), httpx.Cookies()

    def ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self._app), base_url=BASE, cookies=self._cookies
            ) as client:
                headers = {"Authorization": f"Bearer {self._token}", **content.pop("headers", {})}
                answer = await client.request(method, path, headers=headers, **content)
                self._cookies = client.cookies
                return answer

        return asyncio.run(asked())

    def fields(self, path: str) -> dict[str, str]:
        """The fields of a page's last form, as a browser would send them."""
        html = self.ask("GET", path).text
        return fields_of(html)

    def post(self, path: str, fields: dict[str, str], **content: Any) -> httpx.Response:
        return self.ask("POST", path, data=fields, **content)

    def upload(self, file: str, content: bytes, /, **fields: str) -> httpx.Response:
        form = {"token": self.fields("/new")["token"], **fields}
        return self.post("/new", form, files={"file": (file, content)})


def fields_of(html: str) -> dict[str, str]:
    form = html.rpartition("<form")[2]
    inputs = re.findall(r'<input type="(?:hidden|text)"[^>]*?name="([^"]*)"[^>]*?value="([^"]*)"', form)
    areas = re.findall(r'<textarea[^>]*?name="([^"]*)"[^>]*>\n?([^<]*)</textarea>', form)
    chosen = [
        (name, match[1] if (match := re.search(r"<option selected>([^<]*)<", options)) else "")
        for name, options in re.findall(r'<select[^>]*?name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL)
    ]
    return {name: unescape(value) for name, value in (*inputs, *areas, *chosen)}


@pytest.fixture
def browser(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Browser:
    # tests/integration/test_new_project.py has the real child, which imports torch.
    for module in (new_project, spec_edit):
        monkeypatch.setattr(module, "drafted", carry_out)
    return Browser(workspace)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def test_a_file_becomes_a_project_and_its_spec_is_changed(browser: Browser, workspace: Workspace) -> None:
    git(workspace.root, "init", "--quiet")
    (workspace.root / "staged.txt").write_text("of somebody else")
    git(workspace.root, "add", "staged.txt")
    page = browser.upload("../Customers 1.csv", ROWS.encode()).headers["location"]
    shown = browser.ask("GET", page).text
    assert "names the rows, never an input" in shown
    assert "category, 2 levels" in shown
    assert not list((workspace.root / "projects").iterdir()), "nothing is written before it was seen"

    fields = browser.fields(page)
    assert (fields["name"], fields["target"]) == ("customers-1", "left")
    assert browser.post(page, {**fields, "target": "plan", "step": "create"}).status_code == 422
    assert browser.fields(page)["target"] == "plan", "what is written was shown before"
    assert browser.post(page, {**browser.fields(page), "target": "left", "step": "look"}).status_code == 303
    done = browser.post(page, {**fields, "name": "churn", "step": "create", "reason": "we lose people"})
    assert "Commit " in done.text, done.text
    project = workspace.project("churn")
    assert project.spec().data.target == "left"
    assert (project.folder / "Customers-1.csv").read_text() == ROWS
    again = [browser.ask("GET", page), browser.post(page, {**fields, "name": "other", "step": "create"})]
    assert [(answer.status_code, 'href="/projects/churn"' in answer.text) for answer in again] == [(409, True)] * 2
    assert '<option value="plan">' in browser.ask("GET", "/projects/churn/spec").text, "its fields list the columns"
    assert git(workspace.root, "show", "--format=%an|%B", "--name-only").split("\n\n")[:2] == [
        "a person on the overview page|Add the project churn",
        "we lose people",
    ]
    assert "Customers" not in git(workspace.root, "ls-files")
    assert git(workspace.root, "diff", "--cached", "--name-only") == "staged.txt\n"


def test_a_spec_is_changed_as_its_difference_was_shown(browser: Browser, workspace: Workspace) -> None:
    git(workspace.root, "init", "--quiet")
    page = browser.upload("churn.csv", ROWS.encode()).headers["location"]
    browser.post(page, {**browser.fields(page), "name": "churn", "step": "create"})
    project = workspace.project("churn")
    path, before = "/projects/churn/spec", project.spec_path.read_text()
    fields = browser.fields(path)
    wrong = browser.post(path, {**fields, "data.split.test": "1.5", "data.features.drop": "persn", "step": "check"})
    assert wrong.status_code == 422
    assert re.search(r'id="data-split-test-wrong" role="alert">got 1.5, expected', wrong.text), wrong.text
    wrong = browser.post(path, {**fields, "data.features.drop": "persn", "step": "check"})
    assert "no column &#39;persn&#39;" in wrong.text
    asked = browser.post(path, {**fields, "data.show_rows": "false", "data.source": "./evil.py:load", "step": "check"})
    assert "<ins>+  show_rows: false</ins>" in asked.text
    assert project.spec_path.read_text() == before
    answers = fields_of(asked.text)
    assert "Commit " in browser.post(path, {**answers, "step": "write"}).text
    assert project.spec_path.read_text() == before.replace("data:\n", "data:\n  show_rows: false\n", 1)
    assert git(workspace.root, "show", "--format=", "--name-only").strip() == "projects/churn/project.yaml"
    assert browser.post(path, {**answers, "step": "write"}).status_code == 409, "it was changed meanwhile"
    assert [path.name for path in project.folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "content", "fields", "reason"),
    [
        ("rows.csv", b"", {}, "rows.csv"),
        ("rows.csv", b"\xff\xfe\x00a,b\n\xd0,\x98", {}, "rows.csv"),
        ("rows.parquet", b"PAR1", {}, "rows.parquet"),
        ("evil.py", b"import os", {}, "evil.py"),
        ("rows", b"a,b\n1,2\n", {}, "whose ending says the format"),
        ("rows.csv", ROWS.encode(), {"name": "taken"}, "is taken: choose another"),
        ("rows.csv", ROWS.encode(), {"name": "../up"}, "expected lower-case letters"),
        ("rows.csv", ROWS.encode(), {"address": "https://host/rows.csv"}, "got both, expected a file or an address"),
        ("", b"", {}, "got neither, expected a file or an address"),
        ("", b"", {"address": "/etc/passwd"}, "expected one such as https://host/rows.csv"),
    ],
)
def test_what_is_no_data_is_refused_and_nothing_of_it_stays(
    browser: Browser, workspace: Workspace, name: str, content: bytes, fields: dict[str, str], reason: str
) -> None:
    (workspace.root / "projects" / "taken").mkdir()
    answer = browser.upload(name, content, **fields)
    assert answer.status_code == 422
    error = unescape(re.search(r'role="alert">([^<]*)<', answer.text)[1])  # type: ignore[index]
    assert reason in error
    assert str(workspace.root) not in error
    assert list((workspace.cache / "uploads").iterdir()) == []
    assert [folder.name for folder in (workspace.root / "projects").iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("/data/rows.csv", "expected one such as"),
        ("file:///data/rows.csv", "expected one such as"),
        ("FILE:///data/rows.csv", "expected one such as"),
        ("sqlite:////data/shop.db#orders", "expected one such as"),
        ("duckdb:///shop.duckdb#orders", "expected one such as"),
        ("./source.py:load", "expected one such as"),
        ("os.path:join", "expected one such as"),
        ("pypi:palmerpenguins==0.1.4!a.csv", "expected one such as"),
        ("https://evil.example/${LOOPLINE_DASHBOARD_TOKEN}", "LOOPLINE_DASHBOARD_TOKEN is not for pages"),
    ],
)
def test_an_address_names_no_file_no_code_and_no_secret_of_the_platform(address: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        refuse_address(address)


def test_an_address_may_name_the_variables_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES, "SHOP_URL, SIGNATURE")
    monkeypatch.setenv("SHOP_URL", "postgresql://shop:secret@db/shop")
    for address in ("${SHOP_URL}#orders", "https://host/rows.csv?sig=${SIGNATURE}", "s3://bucket/rows.parquet"):
        refuse_address(address)


def test_an_address_with_a_password_is_refused_as_by_the_command(workspace: Workspace) -> None:
    result = carry_out(workspace, DraftRequest(task="draft", source="https://ada:secret@host/rows.csv"))
    assert "holds a user or password" in result.error
    assert "secret" not in result.error


def test_a_file_that_is_too_large_is_refused_before_it_comes(
    browser: Browser, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = browser.ask("POST", "/new", headers={"Content-Length": str(UPLOAD_BYTES + 1)})
    assert (answer.status_code, "register an address" in answer.text) == (413, True)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(9 << 30, 6 << 30, (2 << 30) + 100))
    with pytest.raises(StoreError, match="free some space"):
        uploads.refuse_full_disk(workspace, 51)
    uploads.refuse_full_disk(workspace, 50)
    assert browser.upload("rows.csv", ROWS.encode()).status_code == 503


def test_forms_of_other_pages_are_refused(browser: Browser, workspace: Workspace) -> None:
    for path in ("/new", "/projects/none/spec"):
        assert browser.post(path, {"token": "x" * 64}).status_code == 403
        foreign = browser.post(path, {}, headers={"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403
    assert browser.ask("GET", f"/new/{'0' * 16}").status_code == 404
    assert [uploads.folder_of(workspace, upload) for upload in ("", ".", "..", "../../projects")] == [None] * 4


def test_a_repository_that_cannot_be_written_says_so(
    browser: Browser, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.root / "projects" / "churn"
    folder.mkdir()
    (folder / "project.yaml").write_text("data: {source: rows.csv, target: left}\n")

    def refused(path: Path, text: str) -> None:
        raise StoreError(f"{path.name}: the file system is read-only")

    monkeypatch.setattr(spec_edit, "write_text", refused)
    fields = {**browser.fields("/projects/churn/spec"), "description": "who leaves", "step": "check"}
    answer = browser.post("/projects/churn/spec", fields)
    assert (answer.status_code, "the file system is read-only" in answer.text) == (422, True)
    (folder / "project.yaml").write_text("data: {")
    answer = browser.ask("GET", "/projects/churn/spec")
    assert (answer.status_code, "cannot be edited here" in answer.text, "data: {" in answer.text) == (422, True, True)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("../../a.csv", "a.csv"),
        ("..\\x\\a b#c.csv", "a-b-c.csv"),
        (".hidden.csv", "hidden.csv"),
        ("клиенты.csv.gz", "data.csv.gz"),
    ],
)
def test_the_name_of_a_file_cannot_leave_its_folder(given: str, stored: str, tmp_path: Path) -> None:
    assert uploads.store_file(tmp_path, UploadFile(io.BytesIO(b"x"), filename=given)) == tmp_path / stored


def test_a_file_may_have_the_name_of_any_other(browser: Browser, workspace: Workspace) -> None:
    rows = json.dumps([{"a": row, "b": row % 2} for row in range(50)])
    page = browser.upload("draft.json", rows.encode()).headers["location"]
    browser.post(page, {**browser.fields(page), "name": "drafts", "step": "create"})
    assert (workspace.project("drafts").folder / "draft.json").read_text() == rows


@pytest.mark.parametrize(("hook", "reason"), [("exit 1", "git says"), ("sleep 60", "longer than 0.5 s")])
def test_what_a_hook_refuses_is_not_staged_and_leaves_no_lock(
    hook: str, reason: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "GIT_TIMEOUT_S", 0.5)
    git(workspace.root, "init", "--quiet")
    path = workspace.root / ".git" / "hooks" / "pre-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{hook}\n")
    path.chmod(0o755)
    folder = workspace.root / "projects" / "churn"
    folder.mkdir(parents=True)
    (folder / "project.yaml").write_text("name: churn\n")
    project = workspace.project("churn")
    assert reason in repository.commit(project, ["project.yaml"], "Add it")
    assert git(workspace.root, "diff", "--cached", "--name-only") == ""
    assert not [*(workspace.root / ".git").glob("*.lock")]
