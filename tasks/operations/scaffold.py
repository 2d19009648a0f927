"""A new project: from a data file, with a spec and first expectations, or as a copy of an example."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from models.errors import UsageError
from models.files import SPEC_FILE, replacing_folder, write_text
from models.project_spec.blocks import NAME_PATTERN
from models.project_spec.reader import read_spec
from models.scaffold.table import guess_spec, guess_target
from models.scaffold.text import guess_text_spec, is_text
from models.sources.read import read_source
from tasks.host.workspace import CLONE, Project, Workspace

MOST_COPIED_BYTES = 100 << 20
EXAMPLES = CLONE / "examples"
README = """# {name}

Data: `{source}`. {target}.

    loopline run {name}

See `project.yaml`: what it guessed is commented; correct what is wrong.
"""


def columns_of(path: Path) -> tuple[list[str], str]:
    """Return the columns of a data file and the most likely target; a text has neither.

    Raises:
        DataError: The file cannot be read.
    """
    if is_text(path):
        return [], ""
    table = read_source(path)
    return list(table.column_names), guess_target(table)


def make_project(workspace: Workspace, name: str, data: Path, target: str | None = None) -> Project:
    """Create `projects/NAME` atomically for a data file, or for a text, which has no target.

    Raises:
        UsageError: The name is taken or invalid, the file has no such column, or a target is named for a text.
        DataError: The file cannot be read.
    """
    folder = _free_folder(workspace, name)
    copied = data.is_file() and data.stat().st_size <= MOST_COPIED_BYTES
    source = data.name if copied else str(data.resolve())
    if is_text(data) and target:
        raise UsageError(f"--target: {data} is text, whose every character is predicted: leave it out")
    text = guess_text_spec(data, name, source) if is_text(data) else guess_spec(data, name, target, source)
    target_line = f"Target: `{target}`" if target else "A language model of its characters"
    with replacing_folder(folder) as temporary:
        if copied:
            shutil.copyfile(data, temporary / data.name)
        write_text(temporary / SPEC_FILE, text)
        write_text(temporary / "README.md", README.format(name=name, source=source, target=target_line))
        read_spec(temporary / SPEC_FILE, (), f"{folder / SPEC_FILE}")
    return Project(workspace, folder)


def examples() -> dict[str, Path]:
    """Return the folders of the example projects that come with Loopline, by name."""
    return {path.parent.name: path.parent for path in sorted(EXAMPLES.glob(f"*/{SPEC_FILE}"))}


def copy_example(workspace: Workspace, name: str, example: str) -> Project:
    """Create `projects/NAME` atomically as a copy of an example, under its own name.

    Raises:
        UsageError: The name is taken or invalid, or there is no such example.
    """
    folder, by_name = _free_folder(workspace, name), examples()
    if example not in by_name:
        raise UsageError(f"--example: got {example!r}, expected one of {', '.join(by_name)}")
    with replacing_folder(folder) as temporary:
        shutil.copytree(by_name[example], temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        spec = (temporary / SPEC_FILE).read_text()
        write_text(temporary / SPEC_FILE, re.sub(r"(?m)^name: .*$", f"name: {name}", spec))
        read_spec(temporary / SPEC_FILE, (), f"{folder / SPEC_FILE}")
    return Project(workspace, folder)


def _free_folder(workspace: Workspace, name: str) -> Path:
    """Return the folder for a new project of this name, which does not exist yet."""
    folder = workspace.root / "projects" / name
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"got the name {name!r}, expected lower-case letters, digits, - or _, a letter first")
    if folder.exists():
        raise UsageError(f"{folder}: is there already: choose another name, or edit its {SPEC_FILE}")
    return folder
