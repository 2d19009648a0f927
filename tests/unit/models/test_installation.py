"""Each way to install Loopline has the commands that change its packages there."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from models import installation
from models.installation import Form

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`make |EXTRAS=|git pull|\bpip install|uv pip|uv tool|pipx ")
WORD = re.compile(r"`make|EXTRAS|\bgit\b|\bpip\b|\buv\b|pipx")
"""What a module must hold to have such a text: fewer are parsed."""
OF_OTHERS = {
    "models/export/bundle.py",  # how to run a bundle, which is on a machine without Loopline
}


def texts_of(path: Path) -> list[str]:
    """Return the texts of a module that a user may read, which its docstrings are not."""
    source = path.read_text()
    tree = ast.parse(source if WORD.search(source) else "")
    texts = {id(node): node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            texts.pop(id(node.value), None)
    return [text for text in texts.values() if isinstance(text, str)]


def test_no_message_names_a_command_that_one_form_alone_has() -> None:
    files = [path for room in ("models", "tasks", "flows") for path in (ROOT / room).rglob("*.py")]
    naming = {str(path.relative_to(ROOT)) for path in files if any(map(NAMED.search, texts_of(path)))}
    assert naming == {"models/installation.py", *OF_OTHERS}


@pytest.fixture
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Form:
    forms = {form.name: form for form in installation._FORMS}
    monkeypatch.setattr(installation, "form", lambda: forms[request.param])
    return forms[request.param]


@pytest.mark.parametrize("form", [form.name for form in installation._FORMS], indirect=True)
def test_each_instruction_is_whole(form: Form) -> None:
    instructions = [
        installation.repairing(),
        installation.adding_extra("estimators"),
        installation.adding("no-such"),
        installation.replacing_torch("torch==1.0"),
    ]
    for text in instructions:
        assert text.startswith(("run `", "build ", "add "))
        assert not set("{}") & set(text)
        assert ("make " in text) <= (form.name == "clone")
        assert all(map(shlex.split, re.findall("`(.*?)`", text)))
    assert "estimators" in instructions[1] or form.name == "image"


def test_the_clone_is_told_from_an_installed_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert installation.form().name == "clone"
    (receipt := tmp_path / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "loopline", extras = ["estimators"] }, { name = "teams-rows" }]\n'
    )
    marks = {"uv tool": receipt, "pip": tmp_path}
    missing = tmp_path / "missing"
    forms = tuple(form._replace(mark=marks.get(form.name, missing)) for form in installation._FORMS)
    monkeypatch.setattr(installation, "_FORMS", forms)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert installation.form().name == "uv tool"
    told = shlex.split(installation.adding_extra("kubernetes").strip("run `"))
    assert told[-2:] == ["--with", "teams-rows"], "uv forgets what is not named again"
    receipt.unlink()
    assert installation.form().name == "pip"


def test_what_is_not_as_locked_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert installation.differing() == {}
    (tmp_path / "requirements.lock").write_text(
        "numpy==1.0 \\\n    --hash=sha256:00\nno-such==1.2\nnever==1 ; sys_platform == 'none'\n"
    )
    (tmp_path / "requirements.some.lock").write_text("pytest==0.1\nno-such-too==1.0\n")
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    differing = installation.differing()
    assert set(differing) == {"numpy", "no-such", "pytest"}, "an extra need not be installed"
    assert differing["no-such"] == "no-such missing, locked 1.2"
    assert re.fullmatch(r"numpy \d\S+, locked 1\.0", differing["numpy"])


def test_an_installation_from_a_file_is_repeated_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        version = "7.0"
        notes: str | None = json.dumps({"url": "file:///a/loopline-7.0-py3-none-any.whl"})

        def read_text(self, name: str) -> str | None:
            return self.notes if name == "direct_url.json" else None

    monkeypatch.setattr(installation.metadata, "distribution", lambda _: Distribution())
    monkeypatch.setattr(installation, "_extras", set)
    assert installation._source({"estimators"}) == "'loopline[estimators] @ file:///a/loopline-7.0-py3-none-any.whl'"
    monkeypatch.setattr(Distribution, "notes", None)
    assert installation._source(set()) == "loopline==7.0"
