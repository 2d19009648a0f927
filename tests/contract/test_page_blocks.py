"""Every block of the site, the README and the examples is tested: run, parsed by its reader, or named with the reason.

`tests/e2e/test_tutorials.py` runs the pages of `PAGES` in it. Elsewhere a command is parsed by the program itself, so
its options exist and its values are accepted; what needs a server or another machine is run by the tests of that thing.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from ruamel.yaml import YAML

from flows.cli import loopline
from models.planner.machines import Cluster
from models.project_spec.blocks import Spec
from tests.e2e.test_tutorials import PAGES as FOLLOWED

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    [^\n]*\n(?:\n+(?=    ))?)+")
SHOWN = {"text", "output", "mermaid", "nginx", "sql", "toml"}
"""Blocks that nobody types: output, drawings, and the configuration of another program."""
NOT_RUN = {
    "curl": "needs a server; its path is one of the reference",
    "docker": "as podman",
    "podman": "needs images of containers; tests/contract/test_containers.py reads the files that it is about",
    "apt-get": "needs an index of packages; the program is not ours",
    "nginx": "tests/integration/test_behind_nginx.py runs it with the same options",
    "pip": "needs an index of packages",
    "uv": "needs an index of packages",
    "git": "the program is not ours",
    "cd": "is of the shell",
    "hatchling": "tests/e2e/test_installed.py builds the wheel",
    "ipykernel": "is installed by the line before it",
    "chgrp": "needs a group; the program is not ours",
    "chmod": "needs a workspace; the program is not ours",
    "umask": "is of the shell",
    "sqlite3": "needs a workspace; the program is not ours",
    "prefect": "needs a server",
    "pg_dump": "needs a database; the program is not ours",
    "sbatch": "needs Slurm; tests/cluster/test_slurm.py submits a loop so",
    "eval": "the command in it is parsed",
    "export": "its variable is one of the reference",
    "cp": "its file is there",
    "cat": "its files are there",
    "head": "needs what a command before it prints",
    "mlflow": "tests/contract/test_commands.py looks for its command",
    "dvc": "needs a workspace with data; the program is not ours",
    "make": "tests/contract/test_docs.py looks for the target",
}
"""Commands that are not run, and why."""
OF_OTHERS = ("LOOPLINE_", "MLFLOW_TRACKING_URI", "PREFECT_API_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
WRITTEN = {
    "penguins-edge/predict.py": "by `loopline export`; tests/e2e/test_deployment.py runs it",
    "read_back.py": "from the page; tests/integration/test_dvc.py runs it",
}


def pages(root: Path) -> list[Path]:
    """The pages of the site, and those that a reader meets before it: of the clone and of each example."""
    site = [path for path in (root / "docs").rglob("*.md") if path.parent.name != "decisions"]
    return sorted([*site, root / "README.md", root / "CONTRIBUTING.md", *root.glob("examples/*/README.md")])


def text_of(page: Path) -> str:
    """The text of a page; a file of the project that an example becomes stands for the one of the example.

    The recipes of CONTRIBUTING.md are left out: tests/contract/test_contributing.py follows them.
    """
    text = re.sub(r"^    ```.*?^    ```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\bprojects/\w+/", f"examples/{page.parent.name}/", text) if "examples" in page.parts else text


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The blocks of a page: the language, empty for indented ones, and the lines."""
    yield from FENCE.findall(text)
    in_lists = re.sub(r"^(?:\d+\.|[*-]) .*\n(?=\n    )", "\n", FENCE.sub("", text), flags=re.MULTILINE)
    for block in INDENTED.findall(in_lists):
        yield "", textwrap.dedent(block)


def commands(block: str) -> Iterator[list[str]]:
    """The commands of a block as words, without comments and the variables before them."""
    lines = re.sub(r"(?:^|(?<=\s))#\s.*$", "", block.replace("\\\n", " "), flags=re.MULTILINE)
    lines = re.sub(r"^(\S*loopline \S.*?|\w+=\S+ loopline \S.*?) {3,}.*$", r"\1", lines, flags=re.MULTILINE)
    lines = re.sub(r"(?<=\s)\[([^\]|]*)(?:\|[^\]]*)?\]", r"\1", lines)
    lines = re.sub(r"^\$ ", "", lines, flags=re.MULTILINE)
    for inner in re.findall(r"\$\((loopline [^)]*)\)", lines):
        yield shlex.split(inner)
    reader = shlex.shlex(re.sub(r"\$\([^)]*\)", "RESULT", lines), posix=True, punctuation_chars="\n;&|>")
    reader.commenters, reader.whitespace, reader.whitespace_split, words = "", " \t", True, []
    is_target = False
    for word in [*reader, "\n"]:
        is_target, was_target = word == ">", is_target
        if was_target:
            continue
        if word.strip("\n;&|>"):
            words.append(word)
            continue
        while words and re.match(r"[A-Za-z_]+=", words[0]):
            words = words[1:]
        if words:
            yield words
        words = []


def mistake(root: Path, words: list[str]) -> str | None:
    """What is wrong with a command; None if nothing."""
    program, *rest = words
    match program.removeprefix(".venv/bin/"):
        case "loopline":
            command = loopline.get_command(click.Context(loopline), rest[0])
            try:
                assert command is not None, f"no command {rest[0]}"
                command.make_context(rest[0], rest[1:])
            except (click.UsageError, AssertionError) as error:
                return str(error)
        case "python" if rest[0] == "-c":
            ast.parse(rest[1])
        case "python" if rest[0] == "-m":
            return None if rest[1] in NOT_RUN else f"no module {rest[1]}"
        case "bash":
            return None if (root / rest[0]).is_file() else f"no file {rest[0]}"
        case "python":
            return None if rest[0] in WRITTEN or (root / rest[0]).is_file() else f"no file {rest[0]}"
        case "curl":
            addresses = [urlsplit(re.sub(r"^(?!http)", "//", word)) for word in rest if re.match(r"\w+[:.]", word)]
            routes = (root / "docs" / "reference" / "http.md").read_text()
            firsts = [Path(each.path).parts[1] for each in addresses if each.netloc and each.path]
            unknown = [first for first in firsts if f"/{first}" not in routes]
            return f"no path {unknown}" if unknown else None
        case "export":
            return None if rest[0].startswith(OF_OTHERS) else f"no variable {rest[0]}"
        case "cp" | "cat":
            return None if any(root.glob(rest[0])) else f"no file {rest[0]}"
        case name:
            return None if name in NOT_RUN else f"{name} is neither checked nor in NOT_RUN"
    return None


def is_spec(block: str) -> bool:
    """Whether lines without a language are a part of a spec, or of the place that it names."""
    return bool(re.match(r"(# (project|places)\.yaml|search: |## )", block))


def test_each_command_is_run_or_parsed_by_the_program(root: Path) -> None:
    mistakes = []
    for page in pages(root):
        name = str(page.relative_to(root))
        for language, block in blocks(text_of(page)):
            if language == "console" and name.removeprefix("docs/") in FOLLOWED:
                continue
            if language in ("sh", "console") or (
                not language and not is_spec(block) and not block.startswith(("{", "# yaml-"))
            ):
                found = [(words, wrong) for words in commands(block) if (wrong := mistake(root, words))]
                mistakes += [f"{name}: {' '.join(words)}: {wrong}" for words, wrong in found]
            else:
                assert not language or language in {*SHOWN, "yaml", "json", "python"}, f"{name}: {language}"
    assert mistakes == []


def test_the_check_refuses_what_the_program_refuses(root: Path) -> None:
    refused = {
        "loopline run flights --jsn": "No such option",
        "loopline monitr": "no command",
        "loopline release flights --canary much": "not a valid float",
        "python examples/client/clint.py": "no file",
        "curl localhost:8000/invoke -d '{}'": "no path",
        "kubectl get pods": "neither checked",
    }
    for line, why in refused.items():
        (words,) = commands(line + "\n")
        assert why in (mistake(root, words) or ""), line
    assert list(commands("A=1 loopline down [--wait|--force]   ends it\nloopline up # first\n\n")) == [
        ["loopline", "down", "--wait"],
        ["loopline", "up"],
    ]


def yaml_blocks(root: Path) -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(root)), block)
        for page in pages(root)
        for language, block in blocks(page.read_text())
        if language == "yaml"
    ]


def test_each_part_of_a_spec_is_accepted(root: Path) -> None:
    assert len(yaml_blocks(root)) > 30
    for page, block in yaml_blocks(root):
        part = YAML(typ="safe").load(block)
        if "device" in part:
            Cluster.model_validate(part)
            continue
        data = {"source": "data.csv", "target": "y", "split": {"by": "position"}} | part.get("data", {})
        if data.get("kind") == "text":
            del data["target"]
        try:
            Spec.model_validate({"name": "page", **part, "data": data})
        except ValueError as error:
            pytest.fail(f"{page}: {error}")


def test_each_json_and_python_can_be_parsed(root: Path) -> None:
    for page in pages(root):
        for language, block in blocks(page.read_text()):
            if language == "json":
                json.loads(block)
            elif language == "python" and page.parent.name != "reference":  # there: signatures, from the code
                compile(block, page.name, "exec")
