"""A launcher that a team brings: a row `LAUNCHER` of a file beside `places.yaml`, or of a package."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from models.errors import UsageError, UserCodeError, did_you_mean
from models.project_spec import own_reads
from models.project_spec.references import call, resolve
from models.project_spec.row_source import RowForm, RowKey, checked_row, is_function, is_record, is_texts, read_row
from tasks.ranks.launcher import SchedulerAwayError, Shape, State, name_of
from tasks.ranks.torchrun import torchrun

LAUNCHER = RowForm(
    "LAUNCHER",
    {
        "submit": RowKey("a function of job and settings that returns a sentence", is_function),
        "state": RowKey("a function of a job's name and settings that returns its state", is_function),
        "cancel": RowKey("a function of a job's name and settings", is_function),
        "check": RowKey("a function of settings", is_function, default=None),
        "settings": RowKey("a dict of the keys of an entry with their defaults, None for those needed", is_record, {}),
        "programs": RowKey("a list of texts", is_texts, ()),
    },
)
_AWAY = (ConnectionError, TimeoutError, subprocess.TimeoutExpired)


@dataclass(frozen=True)
class OwnPlace:
    """A place whose engine is a team's row. Its functions run in this process, and decide no result.

    One that raises ConnectionError, TimeoutError or subprocess.TimeoutExpired says that the engine is away, ValueError
    that it refuses.
    """

    engine: str
    base: Path
    settings: Mapping[str, Any]
    programs: tuple[str, ...] = ()
    has_check: bool = False
    starts_jobs: bool = True

    @property
    def cpus(self) -> int | None:
        """The setting `cpus`."""
        return self.settings.get("cpus")

    @property
    def gpus(self) -> int | None:
        """The setting `gpus`."""
        return self.settings.get("gpus")

    def check(self) -> None:
        """Let the row's `check` judge the settings, if it has one; see `Place`."""
        try:
            if self.has_check:
                self._call("check")
        except SchedulerAwayError:
            return

    def check_nodes(self, nodes: tuple[int, int]) -> None:
        """Do nothing: `submit` gets the least and the most nodes."""

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Submit the job in a folder; see `Launcher`."""
        values = {
            "name": name_of(key),
            "folder": job,
            "nodes": shape.nodes,
            "ranks": shape.ranks,
            "threads": shape.threads,
            "restarts": shape.max_restarts,
            "command": functools.partial(torchrun, job, shape),
        }
        return str(self._call("submit", values))

    def state(self, key: str) -> State:
        """Return the state of the job of this name; see `Launcher`.

        Raises:
            UserCodeError: The row returned no state.
        """
        try:
            state: State = self._call("state", name_of(key))
        except SchedulerAwayError:
            return "unknown"
        if state not in get_args(State):
            expected = f"one of {', '.join(get_args(State))}"
            raise UserCodeError(f"{self.engine} state returned {state!r}, expected {expected}: correct it")
        return state

    def cancel(self, key: str) -> None:
        """End the job of this name, if there is one."""
        self._call("cancel", name_of(key))

    def _call(self, verb: str, *arguments: Any) -> Any:
        where = f"{self.engine} {verb}"
        with own_reads.uncounted():
            row = checked_row(resolve(self.engine, self.base), LAUNCHER, self.engine)
            try:
                return call(row[verb], where, *arguments, dict(self.settings))
            except UserCodeError as error:
                if isinstance(error.__cause__, _AWAY):
                    raise SchedulerAwayError(f"{where}: the engine is away ({error.__cause__}): waiting") from error
                if isinstance(error.__cause__, ValueError):
                    cure = "correct places.yaml or `train`"
                    raise UsageError(f"{where}: the engine refuses it: {error.__cause__}: {cure}") from error
                raise


def read_own_place(key: str, values: Mapping[str, Any], base: Path) -> OwnPlace:
    """Return the place of an entry whose engine is a row; the row's file is read, not run.

    Args:
        key: The key of the engine, such as `gpu.engine`, for messages.
        values: The entry.
        base: The folder of `places.yaml`.

    Raises:
        UsageError: The row is none, or the entry has an unknown or wrong key, or lacks one.
    """
    engine, place = str(values["engine"]), key.rpartition(".")[0]
    row = read_row(engine, base, LAUNCHER, key)
    defaults = row["settings"]
    for name, value in values.items():
        if name == "engine":
            continue
        if name not in defaults:
            cure = did_you_mean(name, defaults, f"expected one of {', '.join(['engine', *defaults])}")
            raise UsageError(f"{place}.{name}: unknown key: {cure}")
        default = defaults[name]
        if default is not None and type(value) is not type(default):
            raise UsageError(f"{place}.{name}: got {value!r}, expected a value such as {default!r}")
    settings = {**defaults, **{name: value for name, value in values.items() if name != "engine"}}
    missing = [name for name, value in settings.items() if value is None]
    if missing:
        raise UsageError(f"{place}.{missing[0]}: is missing, expected a value: add it")
    return OwnPlace(engine, base, settings, tuple(row["programs"]), has_check=row["check"] is not None)
