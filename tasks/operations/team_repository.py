"""A team's repository: what `loopline init` writes into a folder, all of it or nothing.

`infra/team/` holds the files as they will lie in the repository: `base` always, `ci` where the folder is the top of its
git repository, `docker` by an option. They are written into a temporary folder and then moved; the file that names
Loopline's version comes last, so that the next `loopline init` completes an interrupted one.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from models.errors import StoreError, UsageError, first_of, one_line
from models.files import storing
from tasks.host.workspace import CLONE, HOME, Project, Workspace
from tasks.tools.dvc_repo import add_stages
from tasks.tools.dvc_view import in_git

TEMPLATES = CLONE / "infra" / "team"
VERSION_FILE = "loopline.txt"
IGNORE_FILE = ".gitignore"
SECRETS_FILE = ".env"
MARK = "Written by `loopline init"
"""Is in the first lines of a file that this module wrote, and that the team may have changed since."""
OF_THE_TEAM = {"README.md", "projects/README.md", ".dvcignore", ".dvc/config", ".dvc/.gitignore"}
"""Files that stay as they are in a folder that has them."""
UNDECODED = "surrogateescape"
"""How bytes of the team's `.gitignore` that are no UTF-8 stay as they are."""
SHOWN = 5
SECRET_BYTES = 24
GIT_TIMEOUT_S = 20


@dataclass
class TeamRepository:
    """A folder after `loopline init`: paths are relative to it, in the order of their names."""

    folder: Path
    written: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    project: str = ""
    """The project that it began with, or its first by name; empty without one."""
    has_git: bool = True


def begin(
    folder: Path, project: str = "", make: Callable[[Workspace], Project] | None = None, has_docker: bool = False
) -> TeamRepository:
    """Make a folder a team's repository with an optional first project; in one that is, add what is missing of these.

    Args:
        folder: It need not exist.
        project: The name of the first project; one of this name that is there stays.
        make: Makes that project in a workspace.
        has_docker: Whether to write the image and the compose file too.

    Raises:
        UsageError: The folder is no place for a repository, or has other files with the names of ours.
        DataError: The data of the first project cannot be read.
        StoreError: The folder cannot be written.
    """
    folder = Path(os.path.realpath(folder.expanduser()))
    _refuse(folder)
    first = project or next((other.folder.name for other in Workspace(folder).projects()), "")
    repository = TeamRepository(folder, project=first)
    sets = ["base", *(["ci"] if _is_top_of_git(folder) else []), *(["docker"] if has_docker else [])]
    texts = {name: text for part in sets for name, text in _texts(part, folder, first).items()}
    repository.written, repository.present = _compared(folder, texts, set(_texts("docker", folder, first)))
    with _staged(folder) as stage:
        for name in repository.written:
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name], errors=UNDECODED, newline="")
            if name == SECRETS_FILE:
                path.chmod(0o600)
        if make and (folder / "projects" / project).exists():
            repository.present.append(f"projects/{project}")
        elif make:
            first_project = make(Workspace(stage))
            repository.written.append(f"projects/{project}")
            if not (folder / "dvc.yaml").exists():  # else the first loop adds the project to it
                add_stages(first_project)
                repository.written.append("dvc.yaml")
        repository.has_git = in_git(folder) or _git_init(stage)
    return repository


def _refuse(folder: Path) -> None:
    """Check that a repository may begin in a folder."""
    if folder.is_symlink():
        raise UsageError(f"{folder}: is a link to itself: name a folder")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file: name a folder")
    named = os.environ.get(HOME)
    if named and Path(named).expanduser().resolve() != folder:
        raise UsageError(f"{HOME} names {named}, which each later command would use: unset it, then run again")
    for above in (folder, *folder.parents):
        if (above / "models" / "launch.py").exists() and (above / "flows" / "cli.py").exists():
            raise UsageError(
                f"{folder}: lies in a clone of Loopline, where Loopline itself is developed: begin a repository of "
                "your own elsewhere: `loopline init ~/models`"
            )
        if above != folder and _is_ours(above / VERSION_FILE):
            raise UsageError(f"{folder}: lies in the repository {above}: `loopline new NAME` adds a project there")
    Workspace.at(folder)


def _texts(part: str, folder: Path, project: str) -> dict[str, str]:
    """Return the files of a part of the templates: their contents by their paths."""
    values = {
        "@VERSION@": importlib.metadata.version("loopline"),
        "@NAME@": project_name(folder.name),
        "@USER_ID@": str(os.getuid()),
        "@PROJECT@": project or ("PROJECT" if part == "base" else ""),
    }
    texts = {}
    for path in sorted(path for path in (TEMPLATES / part).rglob("*") if path.is_file()):
        text = path.read_text()
        for word, value in values.items():
            text = text.replace(word, value)
        name = path.relative_to(TEMPLATES / part).as_posix()
        texts[name] = re.sub("@SECRET@", lambda _: secrets.token_hex(SECRET_BYTES), text)
    return texts


def _compared(folder: Path, texts: dict[str, str], optional: set[str]) -> tuple[list[str], list[str]]:
    """Return the files to write and those that are there; put the lines of the team's `.gitignore` before ours.

    In a repository that is there, what the team has deleted stays away, but for `optional` files, which are asked for.

    Raises:
        UsageError: A file of another origin has the name of one of ours.
    """
    written: list[str] = []
    present: list[str] = []
    others: list[str] = []
    is_new = not _is_ours(folder / VERSION_FILE)
    for name, text in texts.items():
        path = folder / name
        if any(os.path.lexists(folder / above) and not (folder / above).is_dir() for above in Path(name).parents):
            others.append(name)
        elif not os.path.lexists(path):
            written += [name] if is_new or name in optional else []
        elif name == IGNORE_FILE and is_new and path.is_file():
            before = path.read_bytes().decode(errors=UNDECODED)
            missing = [line for line in text.splitlines() if line not in before.splitlines()]
            texts[name] = before + "\n" * (before[-1:] not in ("", "\n")) + "\n".join([*missing, ""])
            (written if missing else present).append(name)
        else:
            is_old = name not in optional and not is_new
            stays = is_old or name in OF_THE_TEAM or _is_ours(path) or _text_of(path) == text
            (present if stays else others).append(name)
    if others:
        raise UsageError(
            f"{folder}: has {first_of(others, SHOWN, ', ')}, which would be overwritten: move that away, or name "
            "another folder"
        )
    return written, present


def project_name(text: str) -> str:
    """Return a text, such as a file's name, as the name of a project: small letters, digits and `-`, a letter first."""
    latin = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9_]+", "-", latin.lower()).strip("-_")
    return (name if re.match("[a-z]", name) else f"project-{name}".rstrip("-"))[:60]


def _is_ours(path: Path) -> bool:
    return MARK in _text_of(path)[:200]


def _text_of(path: Path) -> str:
    """Return the text of a file; empty where there is none."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose content moves into `folder` if the block succeeds; else nothing of it stays."""
    place = next(above for above in (folder, *folder.parents) if above.is_dir())
    try:
        stage = Path(tempfile.mkdtemp(dir=place, prefix=f".{folder.name}.{os.getpid()}-", suffix=".tmp"))
    except OSError as error:
        raise StoreError(f"{folder}: {place} cannot be written ({error.strerror}): name another folder") from error
    with storing(folder):
        try:
            yield stage
            if folder.exists():
                _move(stage, folder)
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
                stage.chmod(0o755)
                stage.rename(folder)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _move(stage: Path, folder: Path) -> None:
    """Move what a folder holds into another one, the file with the version last."""
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == VERSION_FILE, path.name)):
        target = folder / path.name
        if path.is_dir() and target.is_dir():
            _move(path, target)
        else:
            path.replace(target)


def _is_top_of_git(folder: Path) -> bool:
    """Return whether a folder is, or will be, the top of its git repository: CI systems read their files there."""
    return (folder / ".git").exists() or not in_git(folder)


def _git_init(folder: Path) -> bool:
    """Make a git repository without a commit; return False where git is not installed.

    Raises:
        StoreError: Git refuses.
    """
    try:
        subprocess.run(
            ["git", "init", "--quiet", "--initial-branch=main", str(folder)],
            check=True,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError:
        return False
    except subprocess.SubprocessError as error:
        reason = one_line(getattr(error, "stderr", "") or error, 200)
        raise StoreError(f"`git init` failed: {reason}: correct git's settings, then run again") from error
    return True
