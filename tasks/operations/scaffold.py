"""A new project: from a data file, with a spec and first expectations, or as a copy of an example."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from models.errors import UsageError
from models.files import SPEC_FILE, replacing_folder, write_text
from models.project_spec.blocks import NAME_PATTERN
from models.project_spec.reader import read_spec
from models.scaffold.dates import FILE, date_formats, loader
from models.scaffold.net import net_lines, search_lines
from models.scaffold.table import guess_spec, guess_target
from models.scaffold.text import guess_text_spec, is_text
from models.sources.read import read_source
from models.training.families import search_space
from models.training.spec_check import check_spec
from tasks.host.workspace import CLONE, Project, Workspace

MOST_COPIED_BYTES = 100 << 20
EXAMPLES = CLONE / "examples"
NAME_LINE = re.compile(r"(?m)^name: (.*)$")
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


def make_project(
    workspace: Workspace,
    name: str,
    data: Path,
    target: str | None = None,
    net: str | None = None,
    *,
    copied: bool | None = None,
) -> Project:
    """Create `projects/NAME` atomically for a data file, or for a text, which has no target.

    Args:
        workspace: Of the project.
        name: Of the project.
        data: A table, a folder of tables, or a text.
        target: The column to predict, or several separated by commas.
        net: The spec's `model.net`; the file of `./file.py:NAME`, from the current folder, is copied. Default: auto.
        copied: Whether the file is copied into the project; default: a file of up to `MOST_COPIED_BYTES` is.

    Raises:
        UsageError: The name is taken or invalid, the file has no such column, a target is named for a text, or the net
            cannot learn from such data.
        DataError: The file cannot be read.
    """
    folder = _free_folder(workspace, name)
    if copied is None:
        copied = data.is_file() and data.stat().st_size <= MOST_COPIED_BYTES
    source = data.name if copied else str(data.resolve())
    if is_text(data) and target:
        raise UsageError(f"--target: {data} is text, whose every character is predicted: leave it out")
    if is_text(data) and net:
        raise UsageError(f"--net: {data} is text, whose first spec names a net: leave it out, then change model.net")
    formats = {} if is_text(data) else date_formats(read_source(data))
    text = guess_text_spec(data, name, source) if is_text(data) else guess_spec(data, name, target, source, formats)
    target_line = f"Target: `{target}`" if target else "A language model of its characters"
    with replacing_folder(folder) as temporary:
        if copied:
            shutil.copyfile(data, temporary / data.name)
        write_text(temporary / SPEC_FILE, text)
        if formats:
            write_text(temporary / FILE, loader(source, formats))
        write_text(temporary / "README.md", README.format(name=name, source=source, target=target_line))
        read_spec(temporary / SPEC_FILE, (), f"{folder / SPEC_FILE}")
        if net is not None:
            _name_net(temporary / SPEC_FILE, net)
    return Project(workspace, folder)


def _name_net(path: Path, net: str) -> None:
    """Add a net and its search to the spec of a new project, and the file that the net names to the project."""
    file, _, attribute = net.rpartition(":")
    if file.endswith(".py"):
        if not Path(file).is_file():
            raise UsageError(f"--net: got {net}, and there is no {Path(file).resolve()}: correct the name")
        shutil.copy(file, path.parent)
        net = f"./{Path(file).name}:{attribute}"
    text = "\n".join([path.read_text(), *net_lines(net), ""])
    write_text(path, text)
    spec = read_spec(path)
    check_spec(spec, path.parent)
    write_text(path, "\n".join([text, *search_lines(search_space(spec, base=path.parent).dimensions), ""]))


def examples() -> dict[str, Path]:
    """Return the folders of the example projects that come with Loopline, by name."""
    return {path.parent.name: path.parent for path in sorted(EXAMPLES.glob(f"*/{SPEC_FILE}"))}


def name_in_example(example: str) -> str:
    """Return the name that an example's own spec has.

    Raises:
        UsageError: There is no such example.
    """
    return str(NAME_LINE.findall((_example(example) / SPEC_FILE).read_text())[0])


def copy_example(workspace: Workspace, name: str, example: str) -> Project:
    """Create `projects/NAME` atomically as a copy of an example, under its own name.

    Raises:
        UsageError: The name is taken or invalid, or there is no such example.
    """
    folder, source = _free_folder(workspace, name), _example(example)
    with replacing_folder(folder) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        spec = (temporary / SPEC_FILE).read_text()
        write_text(temporary / SPEC_FILE, NAME_LINE.sub(f"name: {name}", spec))
        read_spec(temporary / SPEC_FILE, (), f"{folder / SPEC_FILE}")
    return Project(workspace, folder)


def _example(name: str) -> Path:
    by_name = examples()
    if name not in by_name:
        raise UsageError(f"--example: got {name!r}, expected one of {', '.join(by_name)}")
    return by_name[name]


def _free_folder(workspace: Workspace, name: str) -> Path:
    """Return the folder for a new project of this name, which does not exist yet."""
    folder = workspace.root / "projects" / name
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"got the name {name!r}, expected lower-case letters, digits, - or _, a letter first")
    if folder.exists():
        raise UsageError(f"{folder}: is there already: choose another name, or edit its {SPEC_FILE}")
    return folder
