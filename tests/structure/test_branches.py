"""Each form of a branch on a kind is counted once, and none is hidden by another way of writing it."""

import ast
from pathlib import Path

import pytest

from tests.structure.branches import branches, count, read_trees

ROWS = """
Task = Literal["binary", "regression"]
Link = Literal["logistic", "identity"]

@dataclass(frozen=True)
class TaskRow:
    name: Task
    link: Link
    is_number: bool
    unit: str | None
    note: str = ""
    refusals: Mapping[str, str] = field(default_factory=dict)

class PerTask(TypedDict, Generic[X]):
    binary: X
    regression: X

def refusal(task: Task, use: str) -> str:
    \"\"\"Why it cannot be done.\"\"\"
    return TASKS[task].refusals.get(use, "")

TASKS: PerTask[TaskRow] = {"binary": TaskRow("binary", "logistic", False, None), "regression": TaskRow(...)}
"""
TABLES = """
from models.kinds.task import TASKS, PerTask
FITS: PerTask[Callable[[], None] | None] = {"binary": fit, "regression": None}
WORDS = {"binary": "yes or no", "regression": "a number"}
HAS_CLASSES: PerTask[bool] = {"binary": True, "regression": False}
NUMBERS = ("regression", "ranking")
READERS: PerDataKind[type[Reader]] = {"table": TableReader, "text": TextReader}
ONE_LABEL = "binary"
"""
READERS = """
class TableReader:
    keep: int | None
class TextReader(TableReader):
    pass
"""
IMPORTS = """
from models.data.tables import FITS, HAS_CLASSES, NUMBERS, ONE_LABEL, READERS, WORDS
from models.kinds.task import TASKS, refusal
"""
RECORDS = """
Form = Literal["number", "time"]
class NumericInput(FrozenModel):
    form: Form
"""
ANSWERS = """
class Summary:
    @property
    def is_series(self) -> bool:
        return self.window is not None

def is_regression(task: str) -> bool:
    if task == "regression":
        return True
    return False

def passes_on(task: str) -> bool:
    return not is_regression(task)
"""
FAMILIES = """
@dataclass(frozen=True)
class Entry:
    fit: str
    by_descent: bool = True

CATALOGUE: dict[str, Entry] = {"trees": Entry("a:b", False), "mlp": Entry("c:d")}
"""


def groups(snippet: str, path: str = "models/data/snippet.py") -> list[str]:
    """The groups of the branches of a snippet, which stands beside rows, tables and answers."""
    sources = {
        "models/kinds/task.py": ROWS,
        "models/data/tables.py": TABLES,
        "models/nets/catalogue.py": FAMILIES,
        "models/data/answers.py": ANSWERS + READERS,
        "models/inputs/numeric/record.py": RECORDS,
        path: IMPORTS + snippet,
    }
    found = branches({name: ast.parse(source) for name, source in sources.items()})
    return [branch.group for branch in found if branch.path == path]


FORMS = {
    "task == 'binary'": "task",
    "task in ('binary', 'multilabel')": "task",
    "task != ONE_LABEL": "task",
    "data.kind == 'table'": "data kind",
    "shape == 'table'": "data kind",
    "column.kind == 'numeric'": "kind of column",
    "net == 'trees'": "family",
    "is_auto(spec)": "family",
    "'trees' not in families": "family",
    "sort_of_net(net) in ('class', 'row')": "family",
    "any(row.by_descent for row in rows)": "family",
    "not row_of(net).by_descent": "family",
    "[name for name, row in CATALOGUE.items() if row.by_descent]": "family",
    "preparation.window is None": "shape",
    "preparation.pixels is not None": "shape",
    "'tokens' in batch": "shape",
    "x if preparation.window else y": "stand-in",
    "not target.classes": "stand-in",
    "target.classes is None": "stand-in",
    "target.classes == ()": "stand-in",
    "len(target.outputs) == 0": "stand-in",
    "bool(len(target.outputs))": "stand-in",
    "target.outputs or [x]": "stand-in",
    "[x for x in y if target.group]": "stand-in",
    "(a, b)[bool(target.group)]": "stand-in",
    "{True: a, False: b}[not target.group]": "stand-in",
    "x if row.is_number else y": "flag",
    "row.is_number is True": "flag",
    "x and not row.is_number": "flag",
    "row.unit is not None": "flag",
    "row.refusals or x": "flag",
    "row.note != ''": "flag",
    "row.link == 'identity'": "flag",
    "link in ('identity', 'logistic')": "flag",
    "FITS[task] is not None": "flag",
    "x if HAS_CLASSES[task] else y": "flag",
    "summary.is_series": "answer",
    "is_regression(task)": "answer",
    "passes_on(task)": "answer",
    "refusal(task, 'backtest') == ''": "answer",
    "task in NUMBERS": "table",
    "task not in WORDS": "table",
    "task in {*WORDS}": "table",
    "task in WORDS.keys()": "table",
    "row.tasks == NUMBERS": "table",
    "task in metric.tasks": "table",
    "WORDS.get(task) is None": "table",
    "WORDS.get(task, '')": "table",
    "{'binary': f, 'language': g}.get(task, h)": "table",
    "isinstance(row, TaskRow)": "class",
    "isinstance(reader, TableReader | TextReader)": "class",
    "type(reader) is TableReader": "class",
    "hasattr(preparation, 'numeric')": "class",
    "getattr(row, 'is_number', False)": "class",
    "list(preparation.numeric)": "own list",
    "preparation.of(NumericInput)": "own list",
    "part.form == 'time'": "flag",
    "part.form in NUMBERS": "table",
    "isinstance(part, NumericInput)": "class",
    "window is None": "name",
    "x if characters else y": "name",
}


@pytest.mark.parametrize(("form", "group"), FORMS.items(), ids=FORMS)
def test_each_form_is_counted_once(form: str, group: str) -> None:
    assert groups(f"def f():\n    return ({form})\n") == [group]
    assert groups(f"def f():\n    if not ({form}):\n        g()\n") == [group]


NO_BRANCHES = [
    "reader.keep is None",
    "TASKS[task].link",
    "WORDS[task]",
    "f(row.is_number)",
    "shapes['table']",
    "name == 'window'",
    "x is None",
]


@pytest.mark.parametrize("form", NO_BRANCHES)
def test_asking_a_table_is_no_branch(form: str) -> None:
    assert groups(f"def f():\n    return ({form})\n") == []


def test_each_case_of_a_match_is_a_branch_but_the_last_one() -> None:
    assert groups("match task:\n    case 'binary' | 'multilabel': f()\n    case 'ranking': g()\n    case _: h()\n") == [
        "task",
        "task",
    ]
    assert groups("match preparation.window:\n    case None: f()\n    case window: g(window)\n") == ["stand-in"]
    assert groups("match row:\n    case TaskRow(link='softmax'): f()\n    case _: g()\n") == ["class"]
    assert groups("match row.link:\n    case 'identity': f()\n    case _: g()\n") == ["flag"]
    assert groups("match x:\n    case _ if row.is_number: f()\n") == ["flag"]


def test_another_name_hides_nothing() -> None:
    assert groups("def f():\n    steps = preparation.window\n    return x if steps else y\n") == ["name"]
    assert groups("def f():\n    numbers = row.is_number\n    return x if numbers else y\n") == ["flag"]
    assert groups("def f():\n    head = TASKS[task].link\n    return head == 'identity'\n") == ["flag"]
    assert groups("def f():\n    if reason := refusal(task, 'backtest'):\n        g(reason)\n") == ["answer"]
    assert groups("def f():\n    fit = FITS[task]\n    return fit() if fit is not None else y\n") == ["flag"]
    assert groups("def f():\n    if (steps := preparation.window) is None:\n        g()\n") == ["shape"]


def test_two_conditions_of_a_line_are_two() -> None:
    assert groups("if preparation.window is None and not target.classes: f()\n") == ["shape", "stand-in"]
    assert groups("f(preparation.numeric, preparation.texts)\n") == ["own list"], "a line, however many lists"


def test_the_rooms_of_the_columns_name_their_own_list() -> None:
    assert groups("f(preparation.numeric)\n", "models/inputs/numeric/rows.py") == []


def test_a_table_of_another_module_may_have_the_name_of_one_of_kinds() -> None:
    sources = {"models/data/tables.py": TABLES, "tasks/state/log.py": "NUMBERS = (1, 2)\nf(x in NUMBERS)\n"}
    found = branches({name: ast.parse(source) for name, source in sources.items()})
    assert [branch for branch in found if branch.path == "tasks/state/log.py"] == []


def test_the_count_says_what_is_in_so_many_words(tmp_path: Path) -> None:
    module = tmp_path / "models" / "data" / "a.py"
    module.parent.mkdir(parents=True)
    module.write_text("if task == 'binary' and target.classes:\n    f()\nif window:\n    g()\n")
    assert count(branches(read_trees(tmp_path))) == {"joint": 2, "in words": 1, "family": 0, "names": 1}
