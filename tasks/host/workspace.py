"""The workspace: the folder with all projects and all of Loopline's state.

<workspace>/projects/NAME/      the user's files: project.yaml, own Python, data/ (owned by DVC)
<workspace>/.loopline/
    state.db                    loops, records of steps, outbox, decisions, events (`tasks/host/tables.py`)
    projects/NAME/              work/, quarantine/, loop.lock
    mlflow/ prefect/ optuna/    the stores of the tools, when no server is named
    cache/                      downloads and file hashes: may be deleted at any time
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError, UsageError
from models.files import SPEC_FILE, storing
from tasks.host import database

if TYPE_CHECKING:
    from models.project_spec.blocks import Spec

HOME = "LOOPLINE_HOME"
STATE = ".loopline"
LAYOUT_FILE = "layout"
LAYOUT = "5"
"""The version of the state folder; it increases when files change their names or meaning. There is no migration."""
IGNORE_FILE = ".gitignore"
UNUSABLE = re.compile("[?#%]")
"""Characters that no workspace may have in its path: its databases are named by addresses, which end there."""
CLONE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Workspace:
    """A folder with `projects/` and `.loopline/`."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """Return the workspace of LOOPLINE_HOME, else the nearest one at or above `start` (default: this folder).

        Raises:
            UsageError: There is none, LOOPLINE_HOME is not a folder, or another version of Loopline made the workspace.
        """
        named = os.environ.get(HOME)
        if named:
            root = Path(named).expanduser().resolve()
            if not root.is_dir():
                raise UsageError(f"{HOME}: got {named}, which is no folder: make it, or correct the variable")
            return cls.at(root)
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / STATE).is_dir() or (folder / "projects").is_dir():
                return cls.at(folder)
        raise UsageError(
            f"{start}: neither this folder nor one above is a workspace, with projects/ or {STATE}/: go into yours, "
            f"name it by {HOME}, or begin one here by `loopline init`"
        )

    @classmethod
    def at(cls, root: Path) -> Workspace:
        """Return the workspace in a folder, which has no state yet if it is new.

        Raises:
            UsageError: The path is unusable, or another version of Loopline made the workspace.
        """
        workspace = cls(root)
        if cut := UNUSABLE.search(str(root)):
            raise UsageError(
                f"{root}: has {cut[0]!r} in its path, where MLflow, Prefect and SQLAlchemy cut the addresses of "
                f"their databases: rename the folder, or name another by {HOME}"
            )
        path, is_made = workspace.state / LAYOUT_FILE, (workspace.state / IGNORE_FILE).exists()
        layout = path.read_text().strip() if path.exists() else "1"
        if is_made and layout != LAYOUT:
            raise UsageError(
                f"{workspace.state}: has layout {layout}, expected {LAYOUT}: another version of Loopline made it. "
                "Move the folder away and run again, or go back to that version: nothing in it was changed"
            )
        return workspace

    @property
    def state(self) -> Path:
        """`.loopline/`."""
        return self.root / STATE

    @property
    def cache(self) -> Path:
        """Downloads and file hashes."""
        return self.state / "cache"

    @property
    def locks(self) -> Path:
        """Lock files; the kernel releases a lock when its holder dies."""
        return self.state / "locks"

    @property
    def expectations(self) -> Path:
        """The link to the context of Great Expectations, which looks for this name in a folder that it is told."""
        return self.state / "gx"

    @property
    def platform(self) -> Path:
        """State of the platform's services: ports, logs, the supervisor."""
        return self.state / "platform"

    def make(self) -> None:
        """Create the state folder, which no other account may enter, and let this process write for its own account.

        DVC's site folder is closed too, which DVC would open to everybody: DVC loads pickles from it (3.67).

        Raises:
            StoreError: The folder cannot be written.
        """
        keep_others_out(self)
        with storing(self.state):
            self.make_private(self.state)
            for folder in (self.cache, self.locks):
                folder.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # of a workspace that can only be read
                self._close_folders_of_tools()
            ignore = self.state / IGNORE_FILE
            if not ignore.exists():
                (self.state / LAYOUT_FILE).write_text(f"{LAYOUT}\n")
                ignore.write_text("*\n")  # a workspace may be a git repository without our own .gitignore

    @property
    def site_cache(self) -> Path:
        """DVC's folder of caches and locks that belong to no repository."""
        return self.state / "dvc" / "site"

    @property
    def is_of_a_group(self) -> bool:
        """Whether the owner has opened the state folder to its group, and to nobody else: `chmod 2770 .loopline`."""
        with contextlib.suppress(OSError):
            mode = self.state.stat().st_mode
            return bool(mode & stat.S_IRWXG) and not mode & stat.S_IRWXO
        return False

    def make_private(self, folder: Path) -> None:
        """Make a folder, if it is absent, that other accounts cannot enter; its group can where `is_of_a_group`.

        A folder of a group, closed to all others, stays as it is; so does one of another owner or of a read-only disk.
        """
        mode = stat.S_IRWXU | (self.state.stat().st_mode & (stat.S_IRWXG | stat.S_ISGID) if self.is_of_a_group else 0)
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        if folder.stat().st_mode & stat.S_IRWXO:
            with contextlib.suppress(OSError):
                folder.chmod(mode)

    def _close_folders_of_tools(self) -> None:
        for folder in (self.site_cache.parent, self.site_cache, self.site_cache / "repo"):
            self.make_private(folder)
        for folder in (self.root / ".dvc" / "cache", *self.root.glob("projects/*/data")):
            if folder.is_dir():  # of a workspace that was made before other accounts were kept out
                self.make_private(folder)

    def project(self, name_or_path: str) -> Project:
        """Return the project by its name under `projects/`, its folder, or the name of a known project elsewhere.

        Raises:
            UsageError: There is no such project; the message has the most similar name.
        """
        path = Path(name_or_path).expanduser()
        for folder in (self.root / "projects" / name_or_path, path.parent if path.name == SPEC_FILE else path):
            if (folder / SPEC_FILE).is_file():
                return Project(self, folder.resolve())
        elsewhere = self.elsewhere()
        if name_or_path in elsewhere:
            return elsewhere[name_or_path]
        names = [*(project.folder.name for project in self.projects()), *elsewhere]
        near = difflib.get_close_matches(name_or_path, names, 1)
        if near:
            cure = f"did you mean {near[0]!r}?"
        else:
            cure = f"there are {', '.join(names)}" if names else "`loopline new NAME --from data.csv` makes one"
        raise UsageError(
            f"got project {name_or_path!r}, expected a name under projects/ or a folder with {SPEC_FILE}: {cure}"
        )

    def projects(self) -> list[Project]:
        """Return every project under `projects/`, sorted by name."""
        return [Project(self, path.parent) for path in sorted((self.root / "projects").glob(f"*/{SPEC_FILE}"))]

    def elsewhere(self, folders: Mapping[str, Path] | None = None) -> dict[str, Project]:
        """Return existing projects in other folders of which this workspace ran a loop, by their specs' names.

        Args:
            folders: What `folders` returned, if that is known.
        """
        names = {project.folder.name for project in self.projects()}
        folders_by_name = self.folders() if folders is None else folders
        ran = {name: Project(self, folder) for name, folder in sorted(folders_by_name.items()) if name not in names}
        return {name: project for name, project in ran.items() if not project.inside and project.spec_path.is_file()}

    def folders(self, only: str | None = None) -> dict[str, Path]:
        """Return the folder of each project (or of one) of which this workspace ran a loop, by their specs' names."""
        if database.is_absent(self.state):  # a new workspace need not import SQLAlchemy
            return {}
        from sqlalchemy import func, select, tuple_

        from tasks.host.tables import loops

        named = [loops.c.project == only] if only else []
        last = select(loops.c.project, func.max(loops.c.saved)).where(*named).group_by(loops.c.project)
        folders = select(loops.c.project, loops.c.folder).where(tuple_(loops.c.project, loops.c.saved).in_(last))
        with database.reading(self.state) as connection:
            return {name: Path(folder) for name, folder in connection.execute(folders)}


def keep_others_out(workspace: Workspace) -> None:
    """Let no file that this process or its children write be writable by other accounts, whatever the umask is.

    Others of the group may write only where `is_of_a_group`, and as the umask says.
    """
    foreign_writes = stat.S_IWOTH if workspace.is_of_a_group else stat.S_IWOTH | stat.S_IWGRP
    os.umask(os.umask(0o077) | foreign_writes)


@dataclass(frozen=True)
class Project:
    """A folder with a spec, and its folder in the workspace's state."""

    workspace: Workspace
    folder: Path

    @property
    def spec_path(self) -> Path:
        """The `project.yaml`."""
        return self.folder / SPEC_FILE

    @cached_property
    def shown_spec(self) -> str:
        """The spec's path for messages: relative to the current folder if it is below it."""
        current = Path.cwd()
        return str(self.spec_path.relative_to(current) if self.spec_path.is_relative_to(current) else self.spec_path)

    def spec(self, overrides: Sequence[str] = ()) -> Spec:
        """Return the project's current spec.

        Args:
            overrides: `block.key=value` texts that override it.

        Raises:
            UsageError: The spec or an override is wrong, or another project has the name.
        """
        from models.project_spec.reader import read_spec

        spec = read_spec(self.spec_path, overrides, self.shown_spec)
        with contextlib.suppress(StoreError):  # who needs the state database says that it is away
            self.refuse_namesake(spec.name)
        return spec

    @property
    def data(self) -> Path:
        """`data/`, which DVC owns: `raw/` and `prepared/`."""
        return self.folder / "data"

    @property
    def raw(self) -> Path:
        """The raw table."""
        return self.data / "raw" / "raw.parquet"

    @property
    def prepared(self) -> Path:
        """The folder of the prepared data."""
        return self.data / "prepared"

    @cached_property
    def inside(self) -> bool:
        """Whether the project lies under the workspace's `projects/`."""
        return self.folder.parent == (self.workspace.root / "projects").resolve()

    def state(self, name: str) -> Path:
        """Return the project's folder under `.loopline/projects/`; `name` is the spec's name."""
        return self.workspace.state / "projects" / name

    def refuse_namesake(self, name: str, folders: Mapping[str, Path] | None = None) -> None:
        """Check that the state under a name belongs to this project: a copied folder has the name of the original.

        Args:
            name: The spec's name.
            folders: What the workspace's `folders` returned, if that is known.

        Raises:
            UsageError: Another existing project has run loops under this name.
        """
        owner = (self.workspace.folders(name) if folders is None else folders).get(name, self.folder)
        if owner == self.folder or owner.resolve() == self.folder.resolve():
            return
        if (owner / SPEC_FILE).is_file() and not self._was_copied(owner):
            raise self.name_taken(name, owner)

    def _was_copied(self, owner: Path) -> bool:
        """Return whether the workspace of `owner` is another copy of the whole workspace.

        The copy keeps its own loops, or the two share them by their state database.
        """
        other_workspace = owner.parent.parent
        alike = owner.parts[-2:] == self.folder.parts[-2:] and (
            database.is_shared() or (other_workspace / STATE).is_dir()
        )
        return self.inside and alike and other_workspace.resolve() != self.workspace.root.resolve()

    def name_taken(self, name: str, owner: Path) -> UsageError:
        """Return the error for a name that belongs to the project in the folder `owner`."""
        return UsageError(f"{self.shown_spec}: the name {name!r} is taken by {owner}: choose another `name`")
