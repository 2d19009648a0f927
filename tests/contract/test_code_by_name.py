"""Code that is reached by name is in the key of each step that runs it, though no import statement shows it there."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from models.nets.catalogue import CATALOGUE
from models.pipeline.keys import CodeReader, Parts
from models.pipeline.steps import BY_NAME, ENCODING_CODE, INPUT_NODES, INPUT_ROWS, STEPS
from models.project_spec.blocks import Spec
from tasks.host.workspace import Project
from tasks.loop.step_cache import StepCache
from tasks.operations import backtest_cache
from tests.conftest import MakeProject
from tests.structure.nodes import walk

LOOKUPS = {"import_module", "__import__", "resolve", "spec_from_file_location"}
"""The calls that reach code by its name."""


@dataclass(frozen=True)
class Place:
    """A file that reaches code by name.

    Attributes:
        through: The names by which other files make it do so.
        references: The paths of the spec that name the code.
        modules: Patterns of the own modules that it may reach.
        apart: The keys that hold such a file and whose work does not reach the code, with the reason.
    """

    through: tuple[str, ...]
    references: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)


AFTER_PREPARE = dict.fromkeys(
    ("search", "train", "export", "card", "tensors", "backtest train", "backtest export"),
    "it reads the rows that `prepare` left, of models.data.unlabelled too",
)
SCORES_ALONE = "it scores models that are finished, and trains none"
OF_A_MODEL = "the key of its model, a part of it, sees the code"
PERIOD = {
    "backtest predictions": OF_A_MODEL,
    **dict.fromkeys(("judge", "backtest verdicts"), "it reads raw columns as inputs, and learns none"),
}
PLACES = {
    "models/data/clean.py": Place(
        ("made_features",), ("data.features.make",), apart={**AFTER_PREPARE, **PERIOD, "backtest windows": OF_A_MODEL}
    ),
    "models/export/core.py": Place(("core_of",), ("model.net",)),
    "models/export/trained.py": Place(("validation_outputs", "validation_predictions"), ("model.net",)),
    "models/fitted_features/state.py": Place(("fit_state",), ("data.features.fit",), apart={**AFTER_PREPARE, **PERIOD}),
    "models/fitted_features/transform.py": Place(
        ("transform_eagerly", "transform_graph"), ("data.features.transform",), apart={**AFTER_PREPARE, **PERIOD}
    ),
    "models/inputs/rows.py": Place(
        ("ROWS", "learn", "values_of", "prepared_columns", "encoded", "kind_of_texts"),
        modules=(INPUT_ROWS,),
        apart=dict.fromkeys(
            [f"backtest {kind}" for kind in ("predictions", "references", "scores", "verdicts")], OF_A_MODEL
        ),
    ),
    "models/inputs/nodes.py": Place(("NODES", "write_nodes", "opsets_of"), modules=(INPUT_NODES,)),
    "models/metrics/own_metric.py": Place(("metric_of",), ("goal.metric",)),
    "models/nets/build.py": Place(("build_net", "draft_net"), ("model.net",)),
    "models/nets/catalogue.py": Place(("net_name",), ("model.net",)),
    "models/training/batches/own_augment.py": Place(
        ("OwnAugmentation",), ("train.augment.function",), apart={"card": SCORES_ALONE}
    ),
    "models/training/rank.py": Place(("run_job",), ("model.net",)),
    "models/training/optimisation/losses.py": Place(("make_loss",), ("train.loss",), apart={"card": SCORES_ALONE}),
    "models/sources/own.py": Place(("scheme_of",), ("data.source",)),
    "tasks/tools/expectations.py": Place(
        ("run_checks",), ("data.expectations.expect",), apart={"ingest": "its checks of single rows are the library's"}
    ),
}
NO_RESULT = {
    "models/project_spec/references.py": "those who ask it to resolve a name are places",
    "models/project_spec/entry_points.py": "it asks only whether a name is taken; the spec holds the reference",
    "tasks/ranks/own_place.py": "where a training runs decides no result",
    "models/estimators/libraries.py": "a key holds it for a spec with an estimator, beside the code of that",
    "models/distributed/forkserver.py": "it imports early what ranks import by statements",
    "flows/cli.py": "commands, which are in no key",
    "flows/prefect/deployments.py": "flows, which are in no key",
}
"""Files with such a call that decide no result, and why."""


@pytest.fixture(scope="module")
def keys() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The code and the references of each key: those of the steps, and those of other caches."""
    steps = {step.name: (step.code, step.references) for step in STEPS if step.code}
    made = {f"backtest {name}": (code, BY_NAME[name].references) for name, code in backtest_cache._MADE_BY.items()}
    decided = {
        f"backtest {kind}": (code, ("goal.metric",) if reads else ())
        for kind, (code, reads) in backtest_cache._DECIDED_BY.items()
    }
    return {**steps, "tensors": (ENCODING_CODE, ()), **made, **decided}


@pytest.fixture(scope="module")
def reader(code_memory: str, tmp_path_factory: pytest.TempPathFactory) -> CodeReader:
    memory = tmp_path_factory.mktemp("code") / "code.json"
    memory.write_text(code_memory)
    return CodeReader(memory)


@pytest.fixture(scope="module")
def parts(keys: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], reader: CodeReader) -> dict[str, Parts]:
    return {name: reader.parts(code) for name, (code, _) in keys.items()}


@pytest.fixture(scope="module")
def names(trees_by_path: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The names in each file."""
    return {path: names_in(tree) for path, tree in trees_by_path.items()}


def is_lookup(node: ast.AST) -> bool:
    """Whether a call reaches code by name; a path is resolved without an argument."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    return (node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)) in LOOKUPS


def names_in(tree: ast.AST) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }


def modules_named(tree: ast.AST) -> set[str]:
    """The own modules that strings name, with or without an attribute."""
    texts = {node.value for node in walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text.partition(":")[0] for text in texts if re.fullmatch(r"(models|tasks)(\.\w+)+(:\w+)?", text)}


def test_every_look_up_of_code_by_its_name_says_which_keys_see_it(trees_by_path: dict[str, ast.Module]) -> None:
    places = {path for path, tree in trees_by_path.items() if any(map(is_lookup, walk(tree)))}
    assert places == {*PLACES, *NO_RESULT}, "a new place needs a `Place`, and patterns in `Step.code` (steps.py)"


@pytest.mark.parametrize("name", PLACES)
def test_a_key_sees_the_code_that_its_work_reaches_by_name(
    name: str,
    keys: dict[str, tuple[tuple[str, ...], tuple[str, ...]]],
    parts: dict[str, Parts],
    reader: CodeReader,
    names: dict[str, set[str]],
) -> None:
    place = PLACES[name]
    callers = {f"code:{path}" for path, found in names.items() if found & {*place.through}} - {f"code:{name}"}
    module = name.removesuffix(".py").replace("/", ".")
    runs = {key for key, (code, _) in keys.items() if module in code or callers & {*parts[key]}}
    holders = {key for key in runs if f"code:{name}" in parts[key]}
    assert holders
    wanted = {part for pattern in place.modules for part in reader.parts([pattern])}
    blind = {key for key in holders if not ({*place.references} <= {*keys[key][1]} and wanted <= {*parts[key]})}
    assert blind <= {*place.apart}


def test_a_key_sees_each_module_that_a_string_of_its_code_names(
    parts: dict[str, Parts], trees_by_path: dict[str, ast.Module]
) -> None:
    """But those of the catalogue of nets, of which a step runs what its spec names."""
    named = {path: modules_named(tree) for path, tree in trees_by_path.items()}
    del named["models/nets/catalogue.py"]
    missing = {
        (key, module)
        for key, held in parts.items()
        for path, modules in named.items()
        if f"code:{path}" in held
        for module in modules
        if f"code:{module.replace('.', '/')}.py" not in held
    }
    assert missing == set()


@pytest.fixture
def project(make_project: MakeProject, code_memory: str) -> Project:
    project = make_project("tiny")
    (project.workspace.cache / "code.json").write_text(code_memory)
    return project


def cache_of(project: Project, data: dict[str, Any], **blocks: Any) -> StepCache:
    return StepCache(project, Spec.model_validate({"name": "tiny", "data": {"source": "a.csv", **data}, **blocks}))


RUN_A_NET = [step for step in STEPS if "model.net" in step.references]


DATA: dict[str, dict[str, Any]] = {
    "table": {"target": "y"},
    "image": {"target": "y", "image": {"height": 8, "width": 8}},
    "series": {"target": "y", "window": {"length": 8}, "split": {"by": "time", "column": "t"}},
    "text": {},
}


def test_a_step_that_runs_a_net_of_the_catalogue_sees_its_code(project: Project) -> None:
    blind = set()
    for net, row in CATALOGUE.items():
        kind = row.kinds[0]
        cache = cache_of(project, {"kind": kind, **DATA[kind]}, model={"net": net})
        for step in RUN_A_NET:
            code = {f"code:{name.partition(':')[0].replace('.', '/')}.py" for name in row.code(step.family)}
            wanted = code | {f"library:{name}" for name in row.libraries}
            blind |= {(net, step.name, part) for part in wanted - cache.own_parts(step).keys()}
    assert blind == set()


def test_a_step_sees_the_code_of_the_families_of_its_spec_alone(project: Project) -> None:
    cache = cache_of(project, DATA["table"], model={"net": "trees"})
    parts = {step.name: cache.own_parts(step).keys() for step in STEPS}
    runs = {name for name, own in parts.items() if "library:lightgbm" in own}
    assert runs == {step.name for step in RUN_A_NET}
    assert {name for name, own in parts.items() if "code:models/export/trees.py" in own} == {"export"}
    assert {name for name, own in parts.items() if "code:models/training/linear.py" in own} == set()


def test_a_row_among_the_families_is_followed_and_of_a_class_its_library_counts(project: Project) -> None:
    row = 'FAMILY = {"estimator": build, "tasks": ["binary"], "output": "scores"}\n'
    (project.folder / "boosted.py").write_text(f"import trees\n\n\ndef build(settings):\n    trees.grow()\n\n\n{row}")
    (project.folder / "trees.py").write_text("def grow(): return 1\n")
    families = ["sklearn.ensemble:ExtraTreesClassifier", "trees", "./boosted.py:FAMILY"]
    cache = cache_of(project, DATA["table"], search={"families": families})
    before = {step.name: cache.own_parts(step) for step in RUN_A_NET}
    (project.folder / "trees.py").write_text("def grow(): return 2\n")
    for step in RUN_A_NET:
        changed = cache.own_parts(step).items() ^ before[step.name].items()
        assert {name for name, _ in changed} == {"code:trees.py"}
        assert str(before[step.name]["library:sklearn"]).startswith("scikit-learn ")
        assert not [name for name in before[step.name] if "sklearn/" in name], "hundreds of files"


OWN_CODE = {path: path.replace(".", "_") for step in STEPS for path in step.references}
"""By the path of the spec that names it: a module of a team's."""


def with_own_code(project: Project, prefix: str, suffix: str) -> StepCache:
    """The step cache of a spec that names own code wherever it can."""
    document: dict[str, Any] = {"goal": {"direction": "maximize"}}
    for path, module in OWN_CODE.items():
        block = document
        *outer, leaf = path.split(".")
        for key in outer:
            block = block.setdefault(key, {})
        block[leaf] = f"{prefix}{module}{suffix}:run"
    document["data"]["expectations"] = [document["data"]["expectations"]]
    return cache_of(project, {**document.pop("data"), "target": "y"}, **document)


@pytest.mark.parametrize("place", ["the project's folder", "an installed package"])
def test_an_edit_of_a_teams_code_is_in_the_key_of_each_step_that_runs_it(
    place: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_package = place == "an installed package"
    folder = tmp_path / "site-packages" / "rows_of_a_test" if is_package else project.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()
    for module in OWN_CODE.values():
        (folder / f"{module}.py").write_text("def run(): return 1\n")
    if is_package:
        monkeypatch.syspath_prepend(str(folder.parent))
    cache = with_own_code(project, *(("rows_of_a_test.", "") if is_package else ("./", ".py")))
    before = {step.name: cache.own_parts(step) for step in STEPS}
    for path, module in OWN_CODE.items():
        (folder / f"{module}.py").write_text("def run(): return 23\n")
        after = {step.name: cache.own_parts(step) for step in STEPS}
        changed = {name for name, own in after.items() if own != before[name]}
        assert changed == {step.name for step in STEPS if path in step.references}, path
        before = after


def test_compiled_code_of_an_installed_package_counts_by_its_version(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, papers = (tmp_path / "site-packages" / name for name in ("compiled_net", "compiled_net-1.2.dist-info"))
    for folder in (package, papers):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / f"net{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    (papers / "METADATA").write_text("Name: compiled_net\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    cache = cache_of(project, {"target": "y"}, model={"net": "compiled_net.net:build"})
    runs_it = {step.name for step in STEPS if cache.own_parts(step).get("library:compiled_net") == "1.2"}
    assert runs_it == {"search", "train", "export", "card"}
