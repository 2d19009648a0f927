"""Everything public says what it is for."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML

from models.inference import portable
from tasks.release.settings import MOST_CONNECTIONS, ServerSettings
from tasks.serve import batcher
from tasks.serve.grpc.server import MOST_CALLS

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Documented]]:
    """The public functions, classes and methods of a module."""
    for inner in node.body:
        if isinstance(inner, Documented) and not inner.name.startswith("_"):
            yield prefix + inner.name, inner
            if isinstance(inner, ast.ClassDef):
                yield from public(inner, f"{prefix}{inner.name}.")


def test_every_module_and_public_name_has_a_docstring(trees: dict[Path, ast.Module]) -> None:
    missing = []
    for path, tree in trees.items():
        missing += [] if ast.get_docstring(tree) else [str(path)]
        missing += [f"{path}:{name}" for name, node in public(tree) if not ast.get_docstring(node)]
    assert missing == []


def test_the_limits_on_the_page_of_capacity_are_those_of_the_code(root: Path) -> None:
    page = (root / "docs" / "operations" / "capacity.md").read_text()
    most_bytes = ServerSettings("", ()).most_bytes
    limits = {
        "rows of one run of a graph": f"{portable.ROWS_A_PASS:,}",
        "connections of a server's worker": f"{MOST_CONNECTIONS:,}",
        "calls at once over gRPC": f"{MOST_CALLS} a worker, so {MOST_CALLS * most_bytes >> 30} GiB",
        "requests that wait for the batcher": f"{batcher.MOST_WAITING} a worker",
        "a request's body": f"{most_bytes >> 20} MiB",
    }
    assert [f"{name}: {value}" for name, value in limits.items() if f"| {name} | {value}" not in page] == []


def test_no_work_is_promised_for_later(root: Path, modules: list[Path]) -> None:
    marks = [f"{mark}" for mark in ("TO" + "DO", "FIX" + "ME", "X" * 3)]
    found = [f"{path}: {mark}" for path in modules for mark in marks if mark in (root / path).read_text()]
    assert found == []


def test_no_module_is_named_after_nothing(modules: list[Path]) -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert [str(path) for path in modules if empty & {path.stem, *path.parent.parts}] == []


def test_what_the_guides_say_of_make_is_there(root: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    guides = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    call = re.compile(r"(?:^    |`)make ([\w-]+)", re.MULTILINE)
    named = {name for path in guides for name in call.findall(path.read_text())}
    assert {"run", "test", "test-fast", "soak"} <= named <= targets


def test_links_between_pages_lead_to_files(root: Path) -> None:
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "projects").glob("*/README.md")]
    link = re.compile(r"\]\((?!https?:)([^)#]+)")
    broken = [
        f"{page.relative_to(root)}: {to}"
        for page in pages
        for to in link.findall(page.read_text())
        if not (page.parent / to).exists()
    ]
    assert broken == []


def test_the_yaml_of_the_guides_is_taken_by_every_parser(root: Path) -> None:
    """Of DVC too, which takes no `{net: ./net.py:Net}` without quotes."""
    shown = re.compile(r"```yaml\n(.*?)```|`([a-z_.]+: ?[{[][^`]*[}\]])`", re.DOTALL)
    taken = 0
    for page in [root / "README.md", *(root / "docs").rglob("*.md")]:
        for block, line in shown.findall(page.read_text()):
            YAML(typ="safe").load(block or line.replace("\n", " "))
            taken += 1
    assert taken > 50


def test_the_newest_version_of_the_changelog_is_that_of_the_package(root: Path) -> None:
    newest = re.findall(r"^## (\d+\.\d+\.\d+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    package = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    cited = YAML(typ="safe").load((root / "CITATION.cff").read_text())["version"]
    image = YAML(typ="safe").load((root / "infra/kubernetes/kustomization.yaml").read_text())["images"][0]["newTag"]
    assert newest[0] == package == cited == image
    assert newest == sorted(newest, reverse=True)


def test_the_readme_is_short(root: Path) -> None:
    assert len((root / "README.md").read_text().split()) <= 600
