"""A new project: from a data file, with a spec and first expectations, or as a copy of an example."""

from __future__ import annotations

import functools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from models.data.header import no_such_column
from models.errors import UsageError
from models.files import SPEC_FILE, replacing_folder, write_text
from models.inputs.types import is_bytes
from models.project_spec.blocks import NAME_PATTERN
from models.project_spec.reader import read_spec
from models.scaffold.net import net_lines, search_lines
from models.scaffold.pictures import guess_picture_spec, picture_column
from models.scaffold.table import guess_spec, guess_target
from models.scaffold.text import guess_text_spec, is_text
from models.sources.databases.origin import is_database, query_origin
from models.sources.packed import split_part
from models.sources.read import read_source
from models.sources.sample import TableSample, sample_of, whole
from models.sources.schemes import scheme_of
from models.sources.source import Named, Source
from models.training.families import search_space
from models.training.spec_check import check_spec
from tasks.host.workspace import CLONE, Project, Workspace
from tasks.tools.sources import fetch

MOST_COPIED_BYTES = 100 << 20
WILDCARD = re.compile(r"[*?\[]")
EXAMPLES = CLONE / "examples"
NAME_LINE = re.compile(r"(?m)^name: (.*)$")
README = """# {name}

Data: `{source}`. {target}.

    loopline run {name}

See `project.yaml`: what it guessed is commented; correct what is wrong.
"""


@dataclass(frozen=True)
class Origin:
    """Where the rows of a new project come from, read once.

    Attributes:
        source: The value of `data.source`.
        path: The file or folder on this machine; None for rows of own code.
        sample: Its rows, or some of them; None for a text.
        is_here: Whether it is named by a path, so that it may be copied into the project.
        code: The file of own code, which is copied into the project.
    """

    source: Named
    path: Path | None
    sample: TableSample | None
    is_here: bool = False
    code: Path | None = None

    @property
    def columns(self) -> list[str]:
        """The columns; a text has none."""
        return [] if self.sample is None else list(self.sample.table.column_names)

    @property
    def guessed_target(self) -> str:
        """The most likely target; empty for a text."""
        return "" if self.sample is None else guess_target(self.sample.table)

    @property
    def pictures(self) -> tuple[str, Path] | None:
        """The column of pictures, and the folder to which paths are relative; None if there is none."""
        if self.sample is None or self.path is None:
            return None
        folder = self.path if self.path.is_dir() else self.path.parent
        column = picture_column(self.sample.table, folder)
        return None if column is None else (column, folder)


def origin_of(workspace: Workspace, data: str, sql: str | None = None) -> Origin:
    """Read what `data.source` may name, as far as a first spec needs it; paths are relative to the current folder.

    Of a database it is `ADDRESS#TABLE`, or the address and a query.

    What lies elsewhere is copied into the workspace's cache, where the first run finds it.

    Raises:
        DataError: It cannot be read.
        UsageError: There is no such source; `UnnamedTableError` has the tables of a database.
        StoreError: It cannot be fetched.
        UserCodeError: Own code failed.
    """
    if is_database(data):
        origin = query_origin(data, sql, Path.cwd())
        return Origin(origin.query, None, origin.sample)
    if sql is not None:
        raise UsageError(f"--sql: got a query and --from {data}, expected the address of a database: leave it out")
    is_path = scheme_of(data) is scheme_of("a")
    if is_path and not split_part(Path(data).expanduser()).file.exists() and WILDCARD.search(data):
        data, is_path = f"file://{Path(data).expanduser().absolute()}", False
    source, scheme = Source(data, Path.cwd()), scheme_of(data)
    if not is_path:
        scheme.local(source)
    rows = scheme.read(source, functools.partial(fetch, cache=workspace.cache / "sources"))
    if not isinstance(rows.rows, (str, Path)):
        file, _, name = data.rpartition(":")
        code = Path(file) if file.endswith(".py") else None
        named = f"./{code.name}:{name}" if code else data
        return Origin(named, None, whole(read_source(rows.rows, rows.display_name)), code=code)
    path = Path(rows.rows)
    sample = None if is_text(path) else sample_of(path)
    return Origin(str(path.resolve()) if is_path else data, path, sample, is_here=is_path)


def draft(origin: Origin, name: str, target: str | None, source: Named) -> dict[str, str]:
    """Return the texts of a new project by the names of their files.

    Args:
        origin: The rows.
        name: Of the project.
        target: The column to predict, or several separated by commas; default: guessed.
        source: The value of `data.source`.

    Raises:
        UsageError: There is no such column, or a target is named for a text.
        DataError: The rows cannot be learnt from.
    """
    target_line = (
        f"Target: `{target or origin.guessed_target}`" if origin.columns else "A language model of its characters"
    )
    readme = README.format(name=name, source=source, target=target_line)
    return {SPEC_FILE: _first_spec(origin, name, target, source), "README.md": readme}


def _first_spec(origin: Origin, name: str, target: str | None, source: Named) -> str:
    if origin.sample is None:
        if target:
            raise UsageError(f"--target: {origin.path} is text, whose every character is predicted: leave it out")
        return guess_text_spec(Path(str(origin.path)), name, str(source))
    table = origin.sample.table
    if (pictures := origin.pictures) is not None:
        column, folder = pictures
        target = target or next((name for name in table.column_names if name != column), column)
        if target not in table.column_names:
            raise UsageError(f"--target: {no_such_column(target, table.column_names)}")
        return guess_picture_spec(table, column, folder, name, target, str(source))
    return guess_spec(origin.sample, name, target, source)


def make_project(
    workspace: Workspace,
    name: str,
    data: Path | Origin,
    target: str | None = None,
    net: str | None = None,
    *,
    copied: bool | None = None,
) -> Project:
    """Create `projects/NAME` atomically for a data file, or for a text, which has no target.

    Args:
        workspace: Of the project.
        name: Of the project.
        data: A table, a folder of tables or pictures, a text, or what `origin_of` returns.
        target: The column to predict, or several separated by commas.
        net: The spec's `model.net`; the file of `./file.py:NAME`, from the current folder, is copied. Default: auto.
        copied: Whether the file is copied into the project; default: a file of up to `MOST_COPIED_BYTES` is, unless it
            names other files.

    Raises:
        UsageError: The name is taken or invalid, the file has no such column, a target is named for a text, or the net
            cannot learn from such data.
        DataError: The file cannot be read.
    """
    folder = _free_folder(workspace, name)
    origin = data if isinstance(data, Origin) else origin_of(workspace, str(data))
    if origin.sample is None and net:
        raise UsageError(
            f"--net: {origin.path} is text, whose first spec names a net: leave it out, then change model.net"
        )
    file = _copied_file(origin, copied)
    files = draft(origin, name, target, origin.path.name if file and origin.path else origin.source)
    with replacing_folder(folder) as temporary:
        if copy := file or origin.code:
            shutil.copyfile(copy, temporary / copy.name)
        for file_name, text in files.items():
            write_text(temporary / file_name, text)
        read_spec(temporary / SPEC_FILE, (), f"{folder / SPEC_FILE}")
        if net is not None:
            _name_net(temporary / SPEC_FILE, net)
    return Project(workspace, folder)


def _copied_file(origin: Origin, copied: bool | None) -> Path | None:
    """Return the file of the rows if it is copied into the project."""
    if not origin.is_here or origin.path is None or copied is False:
        return None
    file = split_part(origin.path).file
    is_small = file.is_file() and file.stat().st_size <= MOST_COPIED_BYTES
    names_files = origin.pictures and origin.sample and not is_bytes(origin.sample.table.field(origin.pictures[0]).type)
    return file if copied or (is_small and not names_files) else None


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
