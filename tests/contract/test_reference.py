"""The pages of the site that follow from the code are fresh."""

import ast
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import loopline
from infra.documentation.api_reference import imports_of
from infra.documentation.error_reference import HANDLED, Code, Message
from infra.documentation.notebook import PAGE, cells
from infra.documentation.spec_costs import COSTS, NOTHING, costs
from infra.documentation.spec_examples import OWN, examples, keys_of
from infra.documentation.walks import WALKS, Call, Walk, calls, drawing
from tests.loaded import load
from tests.structure.nodes import walk

SCRIPT = Path(__file__).parents[2] / "infra" / "documentation" / "write_reference.py"
PAGES = (
    "reference/commands.md",
    "reference/spec.md",
    "reference/events.md",
    "reference/metrics.md",
    "reference/environment.md",
    "reference/http.md",
    "reference/grpc.md",
    "reference/python.md",
    "reference/errors.md",
    "reference/workspace.md",
    "architecture/walks.md",
    "architecture/layers.md",
    "architecture/kinds.md",
    "decisions/index.md",
    "../examples/notebook/leavers.ipynb",
)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return load(SCRIPT)


def test_the_script_writes_these_pages(reference: ModuleType) -> None:
    assert tuple(reference.PAGES) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(root: Path, reference: ModuleType, name: str) -> None:
    assert (root / "docs" / name).read_text() == reference.PAGES[name](), "run `make reference`"


def test_every_environment_variable_of_the_code_is_described(reference: ModuleType) -> None:
    assert set(reference.VARIABLES) == reference.variables_in_code() - {"LOOPLINE_NOTIFY"}


def test_no_page_and_no_file_of_a_team_imports_a_package_of_ours(root: Path) -> None:
    """A team's own `models`, `tasks` or `flows` hides them: what a file may use comes as an argument."""
    pages = [path for path in (root / "docs").rglob("*.md") if path.parent.name not in ("decisions", "architecture")]
    code = [path for place in ("examples", "projects") for path in (root / place).rglob("*.py")]
    notebooks = [*(root / "examples").rglob("*.ipynb")]
    files = [root / "README.md", *pages, *code, *notebooks]
    assert {(path.name, *name) for path in files for name in imports_of(path.read_text())} == set()
    assert imports_of('    "from models.errors import a, b"\nimport flows.train\npython -m tasks.serve') == {
        *(("models.errors", "a"), ("models.errors", "b"), ("flows.train", ""), ("tasks.serve", "")),
    }


def test_the_notebook_starts_no_process_and_uses_public_names_alone() -> None:
    tree = ast.parse("\n".join(source for kind, source in cells(PAGE.read_text()) if kind == "code"))
    imports = [node for node in walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {"loopline", "client", "pandas", "sys"} == {
        node.module if isinstance(node, ast.ImportFrom) else alias.name for node in imports for alias in node.names
    }
    results = {"loopline": loopline, "result": loopline.Result, "again": loopline.Result, "model": loopline.Model}
    reads = [node for node in walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    used = {(node.value.id, node.attr) for node in reads if isinstance(node.value, ast.Name)}
    assert {("loopline", "run"), ("loopline", "load"), ("model", "predict"), ("model", "serve")} <= used
    for holder, name in used:
        if holder in results:
            assert not name.startswith("_")
            assert name in public_names(results[holder]), f"{holder}.{name}"


def public_names(holder: object) -> set[str]:
    """Of a module what it exports, of a class its methods and the attributes that its docstring names."""
    attributes = re.findall(r"^        (\w+):", holder.__doc__ or "", re.MULTILINE)
    return {*getattr(holder, "__all__", [*vars(holder), *attributes])}


def test_each_key_of_the_spec_has_an_example_that_it_accepts(root: Path) -> None:
    schema = json.loads((root / "infra" / "project.schema.json").read_text())
    keys = dict(keys_of(schema))
    shown = examples(keys)
    assert len(keys) > 150
    assert sorted(set(keys) - set(shown)) == [], "add an example to OWN in infra/documentation/spec_examples.py"
    assert sorted(set(YAML(typ="safe").load(OWN)) - set(keys)) == []
    for path, node in keys.items():
        value = YAML(typ="safe").load(shown[path])
        problems = list(Draft202012Validator({**node, "$defs": schema["$defs"]}).iter_errors(value))
        assert problems == [], f"{path}: {shown[path]}"


def test_each_key_of_the_spec_says_what_it_costs(root: Path, reference: ModuleType) -> None:
    keys = dict(keys_of(json.loads((root / "infra" / "project.schema.json").read_text())))
    unsaid = sorted(set(keys) ^ set(costs()))
    assert unsaid == [], "say in infra/documentation/spec_costs.py what it costs, or that it costs nothing"
    named = [*re.findall(r"^([\w.]+): ", COSTS, re.MULTILINE), *NOTHING.split()]
    assert sorted(key for key in named if named.count(key) > 1) == []
    assert "<br>*Costs*: k trainings for each trial. |" in reference.spec()


def test_each_call_of_grpc_has_its_place(reference: ModuleType) -> None:
    from tasks.serve.grpc import server

    page = reference.grpc()
    assert all(f"| `{name}` |" in page for name in server._CALLS)
    assert "### ModelInferRequest.InferInputTensor\n" in page
    assert "| `parameters` | 4 | map from `string` to `InferParameter` |" in page


def test_each_command_and_metric_has_its_place(reference: ModuleType) -> None:
    from flows.cli import COMMANDS
    from models.metrics.metrics import METRICS

    assert all(f"\n## {name}\n" in reference.commands() for name in COMMANDS)
    assert all(f"| `{name}` |" in reference.metrics() for name in METRICS)


def test_the_drawing_of_the_layers_follows_the_contracts(reference: ModuleType) -> None:
    layers = reference.layers()
    assert "tasks --> models" in layers
    assert "mlflow | prefect | tools" in layers


def test_arrows_of_a_walk_are_read_from_the_code() -> None:
    files = ("tasks.serve.compactor", "tasks.operations.compact", "tasks.steps.judge", "models.judge.decide")
    assert list(calls(files[0], files)) == [Call(*files[:2], "", is_process=True)]
    assert list(calls(files[2], files)) == [Call(*files[2:], "judge")]
    with pytest.raises(ValueError, match="no file of it calls models"):
        drawing(Walk("A request", "", ("tasks.serve.app",), ("tasks.serve.app", "models.judge.decide")))
    with pytest.raises(ValueError, match="no module tasks"):
        drawing(Walk("A request", "", ("tasks.serve.door",), ("tasks.serve.door",)))


def test_the_walk_of_a_run_has_every_step(root: Path) -> None:
    steps = {f"tasks.steps.{path.stem}" for path in (root / "tasks" / "steps").glob("[a-z]*.py")}
    assert steps <= set(WALKS[0].files)


@pytest.fixture(scope="module")
def errors(root: Path) -> Code:
    return Code.read(root)


def test_every_module_that_raises_has_its_place_on_the_page_of_errors(root: Path, errors: Code) -> None:
    """The command line ends an error with that address."""
    raising = errors.raising()
    page = (root / "docs" / "reference" / "errors.md").read_text()
    assert len(raising) > 100
    assert sorted(module for module in raising if f'<a id="{module}"></a>' not in page) == []


@pytest.mark.parametrize(
    ("text", "cause", "cure"),
    [
        ("data.id: no column NAME: name another", "data.id: no column NAME", "name another"),
        ("train.lr: got VALUE, expected a number > 0", "train.lr: got VALUE", "expected a number > 0"),
        ("x.y: got A, expected `k: v`: take parallel: fsdp", "x.y: got A, expected `k: v`", "take parallel: fsdp"),
        ("x.y: got A (rows: N): take more", "x.y: got A (rows: N)", "take more"),
        ("x.y: A has B (rows: N): CURE", "x.y: A has B (rows: N): CURE", ""),
        ("PATH: cannot be read", "PATH: cannot be read", ""),
        ("PATH: cannot be read: ERROR", "PATH: cannot be read: ERROR", ""),
    ],
)
def test_a_message_is_divided_into_cause_and_cure(text: str, cause: str, cure: str) -> None:
    assert Message("models.data.split", "DataError", text).cause_and_cure == (cause, cure)


def test_every_message_has_a_cure_or_is_handled(errors: Code) -> None:
    """73 messages said `the end of the message says it`, or what any error of their kind needs."""
    messages = list(errors.messages())
    assert len(messages) > 500
    assert [f"{one.module}: {one.text}" for one in messages if not one.cure] == []
    places = {one.kind.strip("_") for one in messages} | {one.module.rpartition(".")[0] for one in messages}
    assert sorted(set(HANDLED) - places) == []


@pytest.mark.parametrize(
    ("lines", "cure"),
    [
        (
            "cure = 'name another'\n    cure = did_you_mean(x, y, 'see the list')",
            "did you mean NEAREST? or see the list",
        ),
        ("cure = f'add {x}' if y else 'remove it'", "add X or remove it"),
        ("reason, cure = y, 'free the disk'", "free the disk"),
        ("hint = f'take {x}' if y else f'got {y}'\n    cure = 'unused'", "take X"),
    ],
)
def test_a_cure_that_a_function_names_is_read(tmp_path: Path, lines: str, cure: str) -> None:
    (tmp_path / "models").mkdir()
    name = "hint" if "hint" in lines else "cure"
    (tmp_path / "models" / "a.py").write_text(
        "class LooplineError(Exception): ...\nclass AError(LooplineError): ...\n"
        f"def f(x, y):\n    {lines}\n    raise AError(f'{{x}}: is full: {{{name}}}')\n    cure = 'too late'\n"
    )
    (message,) = Code.read(tmp_path).messages()
    assert (message.cause_and_cure, message.cure) == (("X: is full", cure), cure)


def test_messages_are_read_with_the_names_of_their_values(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.py").write_text(
        "CURE = 'name another'\nclass LooplineError(Exception): ...\nclass AError(LooplineError): ...\n"
        "def f(x):\n    raise AError(f'{x.name!r}: got {len(x)} of {\", \".join(known)}: {CURE}')\n"
        "def g(x):\n    raise AError(_text(x)) from None\n"
        "def _text(x):\n    return f'no {x}' if x else 'nothing'\n"
    )
    code = Code.read(tmp_path)
    assert code.raising() == {"models.a"}
    assert [one.text for one in code.messages()] == ["NAME: got X of KNOWN: name another", "no X", "nothing"]
