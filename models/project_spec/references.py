"""References: the names of code in a spec.

A reference is a short name (from a table of the caller), `package.module:attr`, or `./file.py:attr`, relative to the
spec's folder. Only the reference and plain data cross a process boundary; the other process resolves it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

from models.errors import UsageError, UserCodeError, did_you_mean
from models.project_spec import own_reads

OWN_PACKAGES = ("flows", "models", "tasks")
ESTIMATOR_PACKAGES = ("sklearn", "xgboost", "catboost")
"""Packages whose classes `model.net` may name: estimators that follow scikit-learn's interface."""
FAMILY = "FAMILY"
"""The end of the name of a row of a team's own family: `./boosted.py:FAMILY`."""
NetSort = Literal["ready", "class", "row", "net"]
"""What `model.net` names: a ready net, the class of an estimator, or a team's own row of a family or torch net."""
FamilyPart = Literal["fit", "outputs", "graph"]
"""A part of a family's code: its training, its outputs for examples, its nodes in a graph."""
ALIASES = ("champion", "challenger", "previous")
"""The names of a project's versions that move."""
_loaded: dict[str, tuple[Path, str]] = {}
"""Modules that users' files imported from their own folders: the file of each, and its content hash at that time."""
_folders: set[Path] = set()
"""The folders of users' files."""


def is_own_code(reference: str) -> bool:
    """Return true for `package.module:attr` and `./file.py:attr`, false for a short name or a plain path."""
    target, colon, attr = reference.rpartition(":")
    return bool(colon) and attr.isidentifier() and (target.endswith(".py") or _is_dotted(target))


def sort_of_net(net: str) -> NetSort:
    """Return what a net, by its resolved name, is; its name tells, so no file is opened and nothing is imported."""
    if not is_own_code(net):
        return "ready"
    target, _, attr = net.rpartition(":")
    if target.partition(".")[0] in ESTIMATOR_PACKAGES and not target.endswith(".py"):
        return "class"
    return "row" if attr.endswith(FAMILY) else "net"


def estimators_among(nets: Iterable[str]) -> list[str]:
    """Return the classes of estimators and the rows of a team's own families among nets, by their resolved names."""
    return [net for net in nets if sort_of_net(net) in ("class", "row")]


def short_name(net: str) -> str:
    """Return a net's name for people and folders: that of a class, of a row the name of its file or module.

    Two references may have the same short name.
    """
    target, _, attr = net.rpartition(":")
    file = target.removesuffix(".py").replace("/", ".").rpartition(".")[2]
    names: dict[NetSort, str] = {"ready": net, "class": attr, "row": file, "net": attr}
    return names[sort_of_net(net)]


def is_version(weights: str) -> bool:
    """Return whether `train.start.weights` names a version of the project, and not a file."""
    return weights in ALIASES or weights.isdecimal()


def weights_file(weights: str, base: Path) -> Path:
    """Return the file that `train.start.weights` names, relative to `base`.

    Raises:
        UsageError: There is no such file.
    """
    try:
        path = (base / Path(weights).expanduser()).resolve()
    except RuntimeError:  # `~` names an unknown user
        path = base / weights
    if not path.is_file():
        expected = f"one of {', '.join(ALIASES)}, a version number or a safetensors file"
        raise UsageError(f"train.start.weights: got {weights!r}, and there is no {path}: expected {expected}")
    return path


def resolve(reference: str, base: Path, short: Mapping[str, str] | None = None) -> Any:
    """Return the object that `reference` names.

    Args:
        reference: A key of `short`, `package.module:attr`, or `./file.py:attr`.
        base: The folder of the spec; relative files start there.
        short: Short names and their full references.

    Raises:
        UsageError: The name, file, module or attribute does not exist; the message lists known names.
        UserCodeError: The module raised while it was imported; the cause is chained.
    """
    short = short or {}
    full = short.get(reference, reference)
    if not is_own_code(full):
        raise UsageError(_unknown_name(reference, short))
    target, _, attr = full.rpartition(":")
    if target.partition(".")[0] in OWN_PACKAGES:
        module = importlib.import_module(target)
    else:
        module = _load(target, reference, base)
    if not hasattr(module, attr):
        raise lacks(reference, full, [name for name in vars(module) if not name.startswith("_")])
    return getattr(module, attr)


def _load(target: str, reference: str, base: Path) -> ModuleType:
    """Import a user's file or module, and watch what it reads."""
    if target.endswith(".py"):
        own_reads.watch(str((base / target).resolve()))
        with own_reads.crediting(f"{base}:{target}", is_import=True):
            return _load_file(base, target)
    with _importing(target, reference):
        package = importlib.util.find_spec(target.partition(".")[0])
        own_reads.watch(package.origin if package else None)
        with own_reads.crediting(target, is_import=True):
            return importlib.import_module(target)


def lacks(reference: str, full: str, names: Iterable[str]) -> UsageError:
    """Return the error for a reference, in long form `full`, whose module defines only the `names` names."""
    target, _, attr = full.rpartition(":")
    hint = did_you_mean(attr, sorted(names), "define it there, or correct the name")
    return UsageError(f"{reference}: {target} has no {attr!r}: {hint}")


def call(function: Callable[..., Any], reference: str, *arguments: Any, **keywords: Any) -> Any:
    """Call a user's function; its errors become a UserCodeError that names the user's line.

    Raises:
        UserCodeError: The function raised; the message has the type, the text and the line in the user's file.
    """
    try:
        with _credited(function, reference):
            return function(*arguments, **keywords)
    except (UserCodeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frame = _last_frame(error)
        namesake = _namesake(error)
        if namesake:
            raise UserCodeError(f"{reference} raised {type(error).__name__}: {error} ({frame}): {namesake}") from error
        raise UserCodeError(f"{reference} raised {type(error).__name__}: {error} ({frame})") from error


def _credited(function: Callable[..., Any], reference: str) -> contextlib.AbstractContextManager[None]:
    """Credit what a user's function read at earlier calls too; one of ours that calls it is not its name."""
    module = str(getattr(function, "__module__", None) or type(function).__module__)
    is_ours = module.partition(".")[0] in OWN_PACKAGES
    return contextlib.nullcontext() if is_ours else own_reads.crediting(f"{module}:{reference}")


def source_file(reference: str, base: Path) -> Path | None:
    """Return the file of a reference to code, for fingerprints; None for short names and compiled modules.

    Raises:
        UsageError: The package that holds the module is not installed.
        UserCodeError: The package raised while it was imported.
    """
    if not is_own_code(reference):
        return None
    target = reference.rpartition(":")[0]
    if target.endswith(".py"):
        return (base / target).resolve()
    with _importing(target, reference):
        module_spec = importlib.util.find_spec(target)
    return (
        Path(module_spec.origin) if module_spec and module_spec.origin and module_spec.origin.endswith(".py") else None
    )


def _is_dotted(target: str) -> bool:
    return bool(target) and all(part.isidentifier() for part in target.split("."))


def _unknown_name(reference: str, short: Mapping[str, str]) -> str:
    cure = did_you_mean(reference, short, "for your own code write ./file.py:name")
    names = f"one of {', '.join(sorted(short))}" if short else "package.module:name or ./file.py:name"
    return f"got {reference!r}, expected {names}; {cure}"


def _load_file(base: Path, target: str) -> ModuleType:
    path = (base / target).resolve()
    if not path.is_file():
        raise UsageError(f"{target}: no such file beside the spec ({path}): correct the name, or make the file")
    _forget_edited(path.parent)
    # The content hash is part of the name, so an edited file never returns the module from before the edit.
    name = f"_loopline_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{_content(path)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{target}: cannot be loaded as Python: name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _open(path.parent)
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as error:
        del sys.modules[name]
        cure = _namesake(error) or "correct the file"
        raise UserCodeError(f"{target} raised {type(error).__name__} on import: {error}: {cure}") from error
    _note_loaded(path.parent)
    return module


class _UncachedLoader(SourceFileLoader):
    """Compiles a user's code anew, and stores no bytecode, which only compares the source's size and whole second."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError(f"{path}: is compiled anew")


def _find_beside(folder: str) -> FileFinder:
    """Find the modules beside a user's file, and those of packages there."""
    place = Path(folder)
    if "site-packages" in place.parts or not any(place.is_relative_to(own) for own in _folders):
        raise ImportError(f"{folder}: has no user's code")
    return FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_UncachedLoader, SOURCE_SUFFIXES))


sys.path_hooks.insert(0, _find_beside)


def _open(folder: Path) -> None:
    """Let a user's file import what lies beside it."""
    if folder in _folders:
        return
    _folders.add(folder)
    sys.path_importer_cache.pop(str(folder), None)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _note_loaded(folder: Path) -> None:
    inside = f"{folder}{os.sep}"
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.startswith(inside):  # thousands of modules: compares texts, in 1 ms
            continue
        file = Path(path)
        if "site-packages" in file.parts or not file.is_file():
            continue
        if name not in _loaded or _loaded[name][0] != file:
            _loaded[name] = (file, _content(file))


def _forget_edited(folder: Path) -> None:
    """Unload a user's modules if one was edited since its import: a step's key covers the current files."""
    edited = {name: loaded for name, loaded in _loaded.items() if loaded[0].is_relative_to(folder)}
    if all(file.is_file() and _content(file) == before for file, before in edited.values()):
        return
    for name in edited:
        sys.modules.pop(name, None)
        del _loaded[name]
    importlib.invalidate_caches()


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def has_package(folder: Path, name: str) -> bool:
    """Return whether a folder holds a module or a package of this name; a folder without Python is none."""
    return (folder / f"{name}.py").exists() or any((folder / name).glob("*.py"))


def _namesake(error: BaseException) -> str:
    """Return a cure if a user's code missed something in a package whose name Loopline's own package has."""
    lacking = error.obj if isinstance(error, AttributeError) else None
    name = error.name if isinstance(error, ImportError) else lacking.__name__ if isinstance(lacking, ModuleType) else ""
    top = (name or "").partition(".")[0]
    if top not in OWN_PACKAGES:
        return ""
    return (
        f"here {top!r} is a package of Loopline's: if yours is meant, give it another name, or move it into a package "
        f"of yours, such as shop/{top}"
    )


@contextlib.contextmanager
def _importing(target: str, reference: str) -> Iterator[None]:
    """Convert errors of an import, or of the imports of parent packages, to errors that name the reference."""
    try:
        yield
    except ModuleNotFoundError as error:
        cure = _namesake(error) or "install it, or correct the name"
        raise UsageError(f"{reference}: no module {error.name!r}: {cure}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cure = _namesake(error) or "correct the module"
        raise UserCodeError(f"{target} raised {type(error).__name__} on import: {error}: {cure}") from error


def _last_frame(error: BaseException) -> str:
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no traceback"
