"""What the warm parent of the tests' commands has imported, and done once, before it forks the first of them.

`remember_ours` and `remember_operators` are for the test processes too, `remember_databases` for them alone.

Prefect reads its settings as it is imported: its modules are held back until a command imports them, and the settings
are read then, as in a process of its own.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pkgutil
import re
import sys
import tempfile
import textwrap
import types
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import sqlalchemy.orm

from models.distributed.forkserver import OF_RANKS, PRELOAD

LIBRARIES = (
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PpmImagePlugin",
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "configobj",
    "deltalake",
    "great_expectations",
    "lightgbm",
    "matplotlib.pyplot",
    "mlflow.db",
    "mlflow.onnx",
    "mlflow.pyfunc",
    "mlflow.store.model_registry.sqlalchemy_workspace_store",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
    "mlflow.utils.search_logged_model_utils",
    "onnx",
    "onnxruntime.quantization",
    "onnxscript",
    "optuna.importance",
    "pandas",
    "pandas.core.methods.to_dict",
    "psycopg",
    "pyarrow.dataset",
    "safetensors.numpy",
    "scipy.stats",
    "sklearn.ensemble",
    "tabulate",
    *(
        f"dvc.{name}"
        for name in ("cachemgr", "cli.parser", "data_cloud", "dependency", "dirs", "lock", "rwlock", "scm")
    ),
    *(
        f"dvc.repo.{name}"
        for name in (
            "artifacts",
            "datasets",
            "graph",
            "index",
            "metrics",
            "params",
            "plots",
            "reproduce",
            "stage",
            "trie",
        )
    ),
    "dvc.utils.strictyaml",
    "dvc_data.hashfile.db.local",
    "dvc_data.hashfile.status",
    *PRELOAD,
    *OF_RANKS,
)
OURS = ("models", "tasks", "flows")
HUGE_MB = 1 << 20
"""What a test process holds is no loop's: to look for its garbage took .2 s of CPU a step of a loop or a check."""
BLANK = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 475 230"><defs/></svg>'
PICTURES = "TESTS_PICTURES"
"""The variable with which a command draws the pictures of its loop."""
PREFECT = (
    "prefect.concurrency.services",
    "prefect.engine",
    "prefect.server.api.server",
    "prefect.task_engine",
    "prefect.utilities.visualization",
    "prefect.workers.process",
)
"""Modules of Prefect that no first line of ours imports."""


def preload() -> None:
    """Import what commands need, and do what is done once in a process, so that no command does it again."""
    for name in (*LIBRARIES, *_ours(users_of_prefect=False)):
        importlib.import_module(name)
    remember_ours()
    remember_operators()
    _leave_annotations_of_operators()
    _list_timezones_once()
    _read_authorities_once()
    _fingerprint_once()
    _draw_once()
    _compile_pages_once()
    _export_once()
    _look_at_requirements_once()
    _look_for_frames_once()
    _build_dvcs_parser_once()
    sys.meta_path.insert(0, _HeldBack())


def _ours(users_of_prefect: bool) -> Iterator[str]:
    """Our modules, those that import Prefect with their first lines or all others."""
    for package in OURS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            spec = module.module_finder.find_spec(module.name)  # type: ignore[call-arg]
            source = Path(spec.origin).read_text()
            if bool(re.search(r"^(from|import) prefect\b", source, re.MULTILINE)) == users_of_prefect:
                yield module.name


def remember_ours() -> None:
    """List our own modules and fingerprint each once in a process, whatever the number of its workspaces and steps."""
    from models.pipeline import keys

    root, own_modules, fingerprint = keys.ROOT, keys._own_modules, keys._fingerprint
    listing = own_modules()
    ours = functools.cache(fingerprint)
    own = frozenset(listing.values())
    keys._own_modules = lambda: listing if root == keys.ROOT else own_modules()
    keys._fingerprint = lambda path: (ours if str(path) in own else fingerprint)(path)


def remember_operators() -> None:
    """List torch's ONNX operators, and its own, once in a process, whatever the number of its exports."""
    from torch.export import decomp_utils, exported_program
    from torch.onnx._internal.exporter import _registration

    registry = _registration.ONNXRegistry
    if not hasattr(registry.from_torchlib, "cache_info"):
        registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
        composites = functools.cache(decomp_utils._collect_all_valid_cia_ops)
        decomp_utils._collect_all_valid_cia_ops = exported_program._collect_all_valid_cia_ops = composites


def _leave_annotations_of_operators() -> None:
    """Torch evaluates two annotations for each of 11,000 kernels that an export registers, a fifth of its CPU."""
    from torch import _ops

    source = textwrap.dedent(inspect.getsource(_ops.OperatorBase.py_impl))
    made: dict[str, Any] = {}
    exec(compile(f"from __future__ import annotations\n{source}", _ops.__file__, "exec"), vars(_ops), made)
    _ops.OperatorBase.py_impl = made["py_impl"]


def leave_pictures_blank() -> None:
    """Paint each figure of a loop, which nobody looks at, but leave out matplotlib's drawing: .4 CPU-s a loop."""
    from models.report import style

    @functools.wraps(style.as_svg)
    def blank(_: Any) -> bytes:
        return BLANK

    style.as_svg = blank


def _list_timezones_once() -> None:
    """Prefect lists the folders of all time zones, for 10 ms of CPU, whenever it reads a schedule of an interval."""
    import zoneinfo

    zoneinfo.available_timezones = functools.cache(zoneinfo.available_timezones)


def _read_authorities_once() -> None:
    """Prefect's clients read all certificate authorities seven times a loop, 30 ms of CPU each, to speak plain HTTP."""
    import ssl

    import certifi

    read = ssl.create_default_context
    contexts = {file: read(cafile=file) for file in (certifi.where(), os.environ.get("SSL_CERT_FILE")) if file}

    @functools.wraps(read)
    def create_default_context(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = None if arguments or options.keys() != {"cafile"} else contexts.get(options["cafile"])
        return context or read(*arguments, **options)

    ssl.create_default_context = create_default_context


def remember_databases() -> None:
    """Make each kind of new database once in a process, and copy it for all later workspaces.

    The migrations of a workspace's state take 30 ms of CPU, those of MLflow's store more than a second.
    """
    from tasks.host import database
    from tasks.mlflow import embedded_store

    create, make = database._create, embedded_store._make

    @functools.cache
    def state_database() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            create(Path(folder))
            return (Path(folder) / database.FILE).read_bytes()

    @functools.cache
    def tracking_database() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            make(path := Path(folder) / "mlflow.db")
            return path.read_bytes()

    @functools.wraps(create)
    def copy_state(state: Path) -> None:
        if database.is_absent(state):
            _write_whole(state / database.FILE, state_database())

    @functools.wraps(make)
    def copy_tracking(path: Path) -> None:
        if path.exists():
            make(path)
        else:
            _write_whole(path, tracking_database())

    database._create, embedded_store._make = copy_state, copy_tracking


def _write_whole(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    new.write_bytes(content)
    new.replace(path)


def _fingerprint_once() -> None:
    from models.pipeline import keys, steps

    keys.code_parts({module for step in steps.STEPS for module in step.code})


def _draw_once() -> None:
    from models.report.style import draw

    draw(lambda figure: figure.subplots().plot([0, 1], [0, 1]))


def _compile_pages_once() -> None:
    from models.report.overview_page import FILTERS
    from models.report.pages import environment

    for name in ("card", "page", "parts", "validation"):
        environment(()).get_template(f"{name}.html.j2")
    overview = environment(tuple(FILTERS.items()))
    for name in overview.list_templates():
        if name.startswith("overview/"):
            overview.get_template(name)


def _export_once() -> None:
    import torch
    import tqdm

    from models.data.preparation import Preparation
    from models.data.target_encoding import TargetEncoding
    from models.export.net_graph import net_part
    from models.inputs.categorical.record import CategoricalInput
    from models.inputs.numeric.record import NumericInput

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layer = torch.nn.Embedding(2, 1), torch.nn.Linear(2, 1)

        def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
            joined = torch.cat([numeric, self.embedding(categorical[:, 0])], dim=1)
            return self.layer(torch.nn.functional.dropout(torch.relu(joined), training=self.training))

    tqdm.tqdm.monitor_interval = 0  # its thread could not be forked
    torch.set_num_threads(1)
    target = TargetEncoding(name="y", classes=None, shift=0.0, scale=1.0)
    inputs = [NumericInput(name="x", fill=0.0), CategoricalInput(name="c", categories=["u"])]
    net_part(Net(), Preparation(kind="table", task="regression", target=target, inputs=inputs))


def _look_at_requirements_once() -> None:
    from mlflow.utils.requirements_utils import warn_dependency_requirement_mismatches

    warn_dependency_requirement_mismatches(["mlflow"])


def _look_for_frames_once() -> None:
    import narwhals.dependencies  # LightGBM asks it what a matrix is, and it all packages for their plugins

    narwhals.dependencies.is_into_dataframe(None)


def _build_dvcs_parser_once() -> None:
    """DVC builds the parsers of its fifty commands to read the options of one, 50 ms of CPU."""
    from dvc.cli import parser

    parser.get_main_parser = functools.cache(parser.get_main_parser)
    parser.get_main_parser()


def _build_models_once() -> None:
    """Prefect leaves to each process, and to the first use there, what checks and writes its 300 models."""
    from pydantic import BaseModel

    models, todo = set(), [BaseModel]
    while todo:
        models.update(subclasses := {*todo.pop().__subclasses__()} - models)
        todo += subclasses
    for model in models:
        if model.__module__.startswith("prefect."):
            model.model_rebuild()


class _HeldBack(MetaPathFinder, Loader):
    """Prefect, and our modules that import it: loaded, and not to be seen until they are asked for."""

    def __init__(self) -> None:
        self._ours = ours = list(_ours(users_of_prefect=True))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PREFECT_HOME"] = folder
            for name in (*ours, *PREFECT):
                importlib.import_module(name)
        del os.environ["PREFECT_HOME"]
        _build_models_once()
        sqlalchemy.orm.configure_mappers()  # of MLflow, Optuna and Prefect: .14 CPU-s of each process that asks a store
        prefects = [name for name in sys.modules if name.partition(".")[0] == "prefect"]
        self._modules = {name: sys.modules.pop(name) for name in (*prefects, *ours)}
        for name in ours:
            package, _, last = name.rpartition(".")
            delattr(sys.modules[package], last)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Once one of them is asked for, all are there, with the settings of now."""
        if fullname not in self._modules:
            return None
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        for name in self._ours:  # those of Prefect's packages never lost their names
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, self._modules[name])
        self._modules["prefect.context"].refresh_global_settings_context()
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """The module itself."""
        return self._modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        """It is loaded."""
