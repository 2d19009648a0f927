"""The workspace: where projects are found and where everything that Loopline keeps lies.

<workspace>/projects/NAME/      the user's: project.yaml, own Python, data/ (owned by DVC)
<workspace>/.loopline/
    projects/NAME/              records/, work/, outbox/, quarantine/, loop.json, loop.lock
    mlflow/ prefect/ optuna/    the stores of the tools, when no server is named
    cache/                      downloads and remembered hashes: may be deleted at any time
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from models.errors import UsageError
from models.files import SPEC_FILE, read_json, storing

HOME = "LOOPLINE_HOME"
STATE = ".loopline"
LAYOUT_FILE = "layout"
LAYOUT = "3"
"""Raised whenever files of the state folder change their names or meaning: there is no other way between versions."""
IGNORE_FILE = ".gitignore"
CLONE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Workspace:
    """A folder with `projects/` and `.loopline/`."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """The workspace of LOOPLINE_HOME, else of the nearest folder above `start` that is one, else the clone.

        Raises:
            UsageError: LOOPLINE_HOME names no folder, or another version of Loopline made the workspace.
        """
        named = os.environ.get(HOME)
        if named:
            root = Path(named).expanduser().resolve()
            if not root.is_dir():
                raise UsageError(f"{HOME}: got {named}, which is no folder: make it, or correct the variable")
            return cls(root)._checked()
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / STATE).is_dir() or (folder / "projects").is_dir():
                return cls(folder)._checked()
        return cls(CLONE)._checked()

    def _checked(self) -> Workspace:
        """Itself, if its state has the layout that this program reads and writes; a new one has none yet."""
        path, made = self.state / LAYOUT_FILE, (self.state / IGNORE_FILE).exists()
        layout = path.read_text().strip() if path.exists() else "1"
        if made and layout != LAYOUT:
            raise UsageError(
                f"{self.state}: has layout {layout}, expected {LAYOUT}: another version of Loopline made it. "
                "Move the folder away and run again, or go back to that version: nothing in it was changed"
            )
        return self

    @property
    def state(self) -> Path:
        """`.loopline/`."""
        return self.root / STATE

    @property
    def cache(self) -> Path:
        """Downloads and remembered hashes."""
        return self.state / "cache"

    @property
    def locks(self) -> Path:
        """Lock files; the kernel lets go of them when their holder dies."""
        return self.state / "locks"

    @property
    def platform(self) -> Path:
        """State of the platform's services: ports, logs, the supervisor."""
        return self.state / "platform"

    def make(self) -> None:
        """Create the state folder.

        Raises:
            StoreError: It cannot be written.
        """
        with storing(self.state):
            for folder in (self.state, self.cache, self.locks):
                folder.mkdir(parents=True, exist_ok=True)
            ignore = self.state / IGNORE_FILE
            if not ignore.exists():
                (self.state / LAYOUT_FILE).write_text(f"{LAYOUT}\n")
                ignore.write_text("*\n")  # a workspace may be a git repository without our own .gitignore

    def project(self, name_or_path: str) -> Project:
        """The project of that name under `projects/`, in that folder, or elsewhere and known by its loops.

        Raises:
            UsageError: There is none; names the nearest.
        """
        path = Path(name_or_path).expanduser()
        for folder in (self.root / "projects" / name_or_path, path.parent if path.name == SPEC_FILE else path):
            if (folder / SPEC_FILE).is_file():
                return Project(self, folder.resolve())
        elsewhere = self.elsewhere()
        if name_or_path in elsewhere:
            return elsewhere[name_or_path]
        known = [*(project.folder.name for project in self.projects()), *elsewhere]
        near = difflib.get_close_matches(name_or_path, known, 1)
        if near:
            cure = f"did you mean {near[0]!r}?"
        else:
            cure = f"there are {', '.join(known)}" if known else "`loopline new NAME --from data.csv` makes one"
        raise UsageError(
            f"got project {name_or_path!r}, expected a name under projects/ or a folder with {SPEC_FILE}: {cure}"
        )

    def projects(self) -> list[Project]:
        """Every project under `projects/`, by name."""
        return [Project(self, path.parent) for path in sorted((self.root / "projects").glob(f"*/{SPEC_FILE}"))]

    def elsewhere(self) -> dict[str, Project]:
        """The projects in other folders that a loop was run of here and that are still there, by their specs' names."""
        here = {project.folder.name for project in self.projects()}
        urls = {}
        for path in sorted((self.state / "projects").glob("*/loop.json")):
            project = Project(self, Path(read_json(path).get("folder", path.parent)))
            if path.parent.name not in here and not project.inside and project.spec_path.is_file():
                urls[path.parent.name] = project
        return urls


@dataclass(frozen=True)
class Project:
    """A folder with a spec, and the folder of its state in the workspace."""

    workspace: Workspace
    folder: Path

    @property
    def spec_path(self) -> Path:
        """The `project.yaml`."""
        return self.folder / SPEC_FILE

    @cached_property
    def shown_spec(self) -> str:
        """The path of the spec for messages: relative to the current folder, if it is below."""
        here = Path.cwd()
        return str(self.spec_path.relative_to(here) if self.spec_path.is_relative_to(here) else self.spec_path)

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
        """The prepared folder."""
        return self.data / "prepared"

    @property
    def inside(self) -> bool:
        """Whether the project lies under the workspace's `projects/`."""
        return self.folder.parent == (self.workspace.root / "projects").resolve()

    def state(self, name: str) -> Path:
        """The project's folder under `.loopline/projects/`; `name` is the spec's."""
        return self.workspace.state / "projects" / name

    def refuse_namesake(self, name: str) -> None:
        """Check that the state under a name is this project's: a copied folder has the other project's name.

        Raises:
            UsageError: Loops of another project, which is still there, were run under it.
        """
        owner = Path(read_json(self.state(name) / "loop.json").get("folder", self.folder))
        if owner.resolve() != self.folder.resolve() and (owner / SPEC_FILE).is_file() and not self._was_copied(owner):
            raise self.name_taken(name, owner)

    def _was_copied(self, owner: Path) -> bool:
        """Whether the whole workspace is a copy of the one that holds `owner`, which has loops of its own."""
        other = owner.parent.parent
        alike = owner.parts[-2:] == self.folder.parts[-2:] and (other / STATE).is_dir()
        return self.inside and alike and other.resolve() != self.workspace.root.resolve()

    def name_taken(self, name: str, owner: Path) -> UsageError:
        """The error for a name that the project in the folder `owner` has."""
        return UsageError(f"{self.shown_spec}: the name {name!r} is taken by {owner}: choose another `name`")
