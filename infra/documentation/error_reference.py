"""Reads the errors of the code: each place that makes a `LooplineError`, its message, and the cure in it.

The code is the one owner of its messages: nothing is registered. The page has an anchor for each module, which the
command line derives from the traceback (`flows/console/error_address.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("models", "tasks", "flows")
BASE = "LooplineError"
NAMES_AN_ERROR = re.compile(r"Error\b|GateRefused")
FORWARDED = re.compile(r"[A-Z_. ]*")
"""Values alone: nothing of such a text is known before it is there."""
QUOTED = re.compile(r"`[^`]*`|\{[^}]*\}|\([^()]*\)")
"""Within these a colon divides nothing."""
PLACE = re.compile(r"(command line|rows from FIRST_ROW|[\w.:`'/-]+)( [A-Z_']+)*(, \w+)?")
"""What a message begins with: a key, an option or a file, with its value."""
EXPECTED = re.compile(r"[,;] (?:expected|did you mean) ")
"""What stands before a cure that is no sentence of its own."""
NOTHING = "nothing has to be done: "
HANDLED = {
    "LeaseLostError": NOTHING + "the other process goes on",
    "DamagedError": NOTHING + "what was lost is made again, by the step or from an earlier checkpoint",
    "DamagedFileError": NOTHING + "the file is set aside and the others are read; a backup has its rows",
    "models.export": NOTHING + "this smaller variant is left out, and the exported model is served",
}
"""Errors that the program itself deals with, by kind or folder; each other message names its cure."""
GUIDES = {
    "models.backtest": "how-to/backtest.md",
    "models.data": "how-to/spec.md",
    "models.distributed": "how-to/parallel.md",
    "models.estimators": "how-to/estimators.md",
    "models.export": "how-to/deployment.md",
    "models.feedback": "how-to/feedback.md",
    "models.inference": "how-to/serving.md",
    "models.judge": "how-to/verdict.md",
    "models.metrics": "how-to/goal.md",
    "models.nets": "how-to/own-nets.md",
    "models.planner": "how-to/planner.md",
    "models.project_spec": "how-to/spec.md",
    "models.scaffold": "start/quickstart.md",
    "models.serving": "how-to/serving.md",
    "models.sources": "tutorials/own-source.md",
    "models.training": "how-to/training.md",
    "models.training.checkpoints": "how-to/checkpoints.md",
    "models.validation": "how-to/labels.md",
    "tasks.mlflow": "how-to/operating.md",
    "tasks.platform": "how-to/platform.md",
    "tasks.prefect": "how-to/platform.md",
    "tasks.ranks": "how-to/slurm.md",
    "tasks.release": "how-to/releases.md",
    "tasks.serve": "how-to/serving.md",
    "tasks.state": "how-to/feedback.md",
    "tasks.tools": "tutorials/own-source.md",
}
"""The guide of a folder, where one says more than the messages."""


NEAREST = "did_you_mean"
INSTALLING = {
    "repairing": "bring the packages to the locked ones",
    "adding_extra": "install the extra {}",
    "adding": "install {}",
}
"""What the instructions of `models.installation` say, whose commands differ by how Loopline was installed."""
CURES = ("cure", "hint", "why", "nearest")
"""How functions call the cure that they put into a message."""
Cures = Mapping[str, ast.expr]


class Message(NamedTuple):
    """A message with capitals in the place of its values, such as `data.id: no column NAME`."""

    module: str
    kind: str
    text: str

    @property
    def cause_and_cure(self) -> tuple[str, str]:
        """Return the message up to the colon before its cure, and the cure; without one, what was expected."""
        bare = QUOTED.sub(lambda quoted: "`" * len(quoted[0]), self.text)
        expected = max((found.start() for found in EXPECTED.finditer(bare)), default=-1)
        for colon in (found.start() for found in re.finditer(": ", bare)):
            if colon > expected and _is_cure(bare[:colon], bare[colon + 2 :]):
                return self.text[:colon], self.text[colon + 2 :]
        return (self.text[:expected], self.text[expected + 2 :]) if expected > 0 else (self.text, "")

    @property
    def cure(self) -> str:
        """Return what to do: the cure in the message, or what the program does; nothing if neither is known."""
        folder = self.module.rpartition(".")[0]
        return self.cause_and_cure[1] or HANDLED.get(self.kind.strip("_"), HANDLED.get(folder, ""))


def _is_cure(before: str, after: str) -> bool:
    """Return whether a colon stands between what is wrong and what to do about it."""
    parts = before.split(": ")
    is_place = all(PLACE.fullmatch(part) for part in parts) and parts[-1] != "ERROR"
    return (
        not is_place
        and not FORWARDED.fullmatch(after.partition(": ")[0])
        and not after.startswith(("got ", "no column "))
    )


@dataclass(frozen=True)
class Code:
    """The syntax trees of the modules that make errors, each as its nodes, by name."""

    modules: Mapping[str, list[ast.AST]]

    @classmethod
    def read(cls, root: Path = ROOT) -> Code:
        """Parse the modules of the product that name an error. Cost: about a second."""
        paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
        texts = {path: text for path in paths if NAMES_AN_ERROR.search(text := path.read_text())}
        names = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in texts}
        return cls({names[path]: list(ast.walk(ast.parse(text))) for path, text in texts.items()})

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The names of the classes of errors: those below `LooplineError`."""
        bases = {
            node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
            for nodes in self.modules.values()
            for node in nodes
            if isinstance(node, ast.ClassDef)
        }
        kinds = {BASE}
        while more := {name for name, above in bases.items() if above & kinds} - kinds:
            kinds |= more
        return frozenset(kinds)

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """The texts that a module names, such as a cure that several messages share."""
        return {
            target.id: node.value.value
            for nodes in self.modules.values()
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id.isupper() and isinstance(node.value.value, str)
        }

    @cached_property
    def cures(self) -> Mapping[str, ast.FunctionDef]:
        """The functions that return a text with the nearest name, such as the error of a missing column, by name."""
        return {
            node.name: node
            for nodes in self.modules.values()
            for node in nodes
            if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) == "str"
            if any(ast.unparse(each.func) == NEAREST for each in ast.walk(node) if isinstance(each, ast.Call))
        }

    def messages(self) -> Iterator[Message]:
        """Yield each message once, in the order of the code."""
        seen = set()
        for module, nodes in self.modules.items():
            functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
            around = {id(each): node for node in functions for each in ast.walk(node)}
            here = {node.name: node for node in functions}
            for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.kinds:
                    kind = node.func.id
                    names = cures_of(around[id(node)], node.lineno) if id(node) in around else {}
                    texts = self._texts(node.args[0], here, names) if node.args else []
                    found = [Message(module, kind, text) for text in texts if not _is_forwarded(text)]
                    yield from (message for message in found if message not in seen)
                    seen.update(found)

    def raising(self) -> frozenset[str]:
        """Return the modules that raise an error of Loopline: by its class, or by a function that returns one."""
        makers = self.kinds | {
            node.name
            for nodes in self.modules.values()
            for node in nodes
            if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) in self.kinds
        }
        return frozenset(
            module
            for module, nodes in self.modules.items()
            for node in nodes
            if isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and isinstance(node.exc.func, ast.Name)
            and node.exc.func.id in makers
        )

    def _texts(self, node: ast.expr, functions: Mapping[str, ast.FunctionDef], cures: Cures) -> list[str]:
        """Return a message, or those that a function of the module returns for it."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            function = functions[node.func.id]
            returns = [each for each in ast.walk(function) if isinstance(each, ast.Return) and each.value]
            texts = [self._texts(each.value, {}, cures_of(function, each.lineno)) for each in returns if each.value]
            return [text for each in texts for text in each if not _is_forwarded(text)]
        if isinstance(node, ast.IfExp):
            return self._texts(node.body, functions, cures) + self._texts(node.orelse, functions, cures)
        return [self._text(node, cures)]

    def _text(self, node: ast.expr, cures: Cures) -> str:
        """Return an expression as a text with placeholders."""
        match node:
            case ast.Constant():
                return str(node.value)
            case ast.JoinedStr():
                return "".join(self._text(value, cures) for value in node.values)
            case ast.BinOp(op=ast.Add()):
                return self._text(node.left, cures) + self._text(node.right, cures)
            case ast.FormattedValue():
                return self._text(node.value, cures)
            case ast.Name() if node.id in cures:
                return self._alternatives(cures[node.id])
            case ast.Name() if node.id in self.constants:
                return self.constants[node.id]
            case ast.Call(func=ast.Name(id=name)) if name == NEAREST:
                return f"did you mean NEAREST? or {self._text(node.args[2], cures)}"
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in INSTALLING:
                return INSTALLING[name].format(" and ".join(self._text(value, cures) for value in arguments))
            case ast.Call(func=ast.Name(id=name)) if name in self.cures:
                function = self.cures[name]
                returns = [each for each in ast.walk(function) if isinstance(each, ast.Return) and each.value]
                return next(self._text(each.value, cures_of(function, each.lineno)) for each in returns if each.value)
        return placeholder(node)

    def _alternatives(self, node: ast.expr) -> str:
        """Return a cure with its alternatives; one of them may be empty."""
        if isinstance(node, ast.IfExp):
            texts = map(self._alternatives, (node.body, node.orelse))
            return " or ".join(text for text in texts if text and not text.startswith("got "))
        return self._text(node.values[-1] if isinstance(node, ast.BoolOp) else node, {})


def cures_of(function: ast.FunctionDef, line: int) -> Cures:
    """Return what a function calls `cure` or `hint`, or another of these names, last above a line."""
    found: dict[str, ast.expr] = {}
    for node in sorted(ast.walk(function), key=lambda node: getattr(node, "lineno", 0)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if node.lineno < line:
                found[name] = value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if node.lineno < line:
                found |= {one.id: value for one, value in zip(names, values, strict=False) if isinstance(one, ast.Name)}
    return {name: value for name, value in found.items() if name in CURES}


def _is_forwarded(text: str) -> bool:
    """Return whether a message is another's: nothing but places and values."""
    *places, last = re.split(r"[:,;] ", re.sub(r" \(compared with [^()]*\)$", "", text))
    return FORWARDED.fullmatch(last) is not None and all(PLACE.fullmatch(place) for place in places)


def placeholder(node: ast.expr) -> str:  # noqa: C901 - a case for each kind of expression
    """Return capitals for a value that the code puts into a message, named like the value itself."""
    match node:
        case ast.Name():
            return node.id.strip("_").upper()
        case ast.Attribute(attr="__name__" | "__class__"):
            return "TYPE"
        case ast.Attribute():
            return node.attr.strip("_").upper()
        case ast.Call(func=ast.Attribute(), args=[]) | ast.Call(func=ast.Name(), args=[]):
            return placeholder(node.func)
        case ast.Call():
            return placeholder(node.args[0])
        case ast.Subscript() | ast.Starred() | ast.Await():
            return placeholder(node.value)
        case ast.GeneratorExp() | ast.ListComp():
            return placeholder(node.generators[0].iter)
        case ast.BoolOp():
            return placeholder(node.values[0])
        case ast.IfExp():
            return placeholder(node.body)
        case ast.BinOp():
            return placeholder(node.left)
    return "VALUE"


def page(note: str, code: Code) -> str:
    """Return the page: the kinds of errors, then the messages of each folder, then those of torch and the GPU."""
    from models import errors

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LooplineError)
    ]
    rows = [f"| `{kind.__name__}` | {kind.exit_code} | {_line(kind.__doc__)} |" for kind in kinds[1:]]
    parts = [
        f"# Errors, by message\n\n{note}\nThe command line ends an error with the address of its place here: "
        "`loopline docs reference/errors#models.data.split`. Capitals stand for what differs from one error to the "
        "next, so search for the words around them. A server answers with the same messages "
        "([status codes](http.md#status-codes)).\n",
        "| kind | exit code | means |\n|---|---|---|\n" + "\n".join(rows) + "\n",
    ]
    folders: dict[str, list[Message]] = {}
    for message in code.messages():
        folders.setdefault(message.module.rpartition(".")[0], []).append(message)
    for messages in folders.values():
        messages.sort(key=lambda message: (message.module, message.text))  # a function that moves changes no line here
    raising = code.raising()
    for module in raising:
        folders.setdefault(module.rpartition(".")[0], [])
    parts += [_section(folder, messages, raising) for folder, messages in sorted(folders.items())]
    return "\n".join([*parts, _known_errors(), "Next: [the files of a workspace](workspace.md)\n"])


def _section(folder: str, messages: list[Message], raising: frozenset[str]) -> str:
    """Return the messages of a folder; the first of each module has the module's name as its anchor."""
    file = ROOT.joinpath(*folder.split("."), "__init__.py")
    guide = GUIDES.get(folder)
    more = f" More: [the guide](../{guide})." if guide else ""
    without = raising - {message.module for message in messages}
    anchors = "".join(_anchor(module) for module in sorted(without) if module.rpartition(".")[0] == folder)
    rows, modules = [], set()
    for message in messages:
        cause, _ = message.cause_and_cure
        anchor = "" if message.module in modules else _anchor(message.module)
        modules.add(message.module)
        rows.append(f"| {anchor}{_code(cause)} | {_markdown(message.cure)} | {message.kind.strip('_')} |")
    table = "| message | do | kind |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
    return f"## {folder}\n\n{anchors}{_line(ast.get_docstring(ast.parse(file.read_text())))}{more}\n\n{table}"


def _anchor(module: str) -> str:
    return f'<a id="{module}"></a>'


def _known_errors() -> str:
    from models.training import known_errors

    rows = [f"| {_code(known.pattern)} | {_markdown(known.sentence)} |" for known in known_errors.KNOWN]
    return (
        f"## Of torch, the GPU and compilers\n\n{_anchor(known_errors.__name__)}Loopline puts the cure before "
        "these, and keeps the original below it.\n\n| original | cause and cure |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def _line(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _code(text: str) -> str:
    """Return a code span, of two backticks since messages have single ones in them."""
    return f"`` {_one_line(text)} ``" if "`" in text else f"`{_one_line(text)}`"


def _markdown(text: str) -> str:
    outside = re.split(r"(`[^`]*`)", _one_line(text))
    return "".join(part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in outside)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
