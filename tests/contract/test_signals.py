"""A signal handler only sets an attribute, raises, or writes to a pipe, by the syntax tree.

It can interrupt the thread that holds a lock. `threading.Event.set`, logging and print take one, and wait for ever.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.nodes import walk

OWN_HANDLERS = {"SIG_IGN", "SIG_DFL", "default_int_handler", "unraisablehook"}
"""Of the interpreter; its hook for dropped exceptions is called outside of handlers."""
LOCK_FREE = {
    *("os._exit", "os.getppid", "os.getpid", "os.kill", "sys.exit"),
    "KeyboardInterrupt",
    "_thread.start_new_thread",  # unlike `threading.Thread.start`, which waits for an event
}
METHODS_OF_PLAIN_VALUES = {"append", "endswith", "isdisjoint"}

Function = ast.FunctionDef | ast.Lambda


class Module:
    """A module's functions by name, and what its names were assigned."""

    def __init__(self, tree: ast.Module) -> None:
        self.calls = [node for node in walk(tree) if isinstance(node, ast.Call)]
        self.functions = {node.name: node for node in walk(tree) if isinstance(node, ast.FunctionDef)}
        self.parameters = {one.arg for node in walk(tree) if isinstance(node, ast.arguments) for one in _all(node)}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.imported = {
            one.asname or one.name: f"{(node.module or '').replace('.', '/')}.py"
            for node in walk(tree)
            if isinstance(node, ast.ImportFrom)
            for one in node.names
        }
        for node in walk(tree):
            for target, value in _assignments(node):
                self.assigned.setdefault(target, []).append(value)


def _all(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and the values that were assigned to them, those of tuples paired."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        both = (target, node.value)
        pairs = (
            zip(both[0].elts, both[1].elts, strict=True)
            if isinstance(both[0], ast.Tuple) and isinstance(both[1], ast.Tuple)
            else [both]
        )
        yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


class Code:
    """Modules that set handlers, by their paths, and those from which they import them."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules

    def wrong(self) -> list[str]:
        """What handlers call that may take a lock."""
        found = []
        for module in self._modules.values():
            for call in module.calls:
                if ast.unparse(call.func) == "signal.signal":
                    found += self._wrong_in(module, call.args[1], set())
        return found

    def _wrong_in(self, module: Module, value: ast.expr, seen: set[str]) -> list[str]:
        """Of a handler, or of a call that makes one."""
        if isinstance(value, ast.Attribute) and value.attr in OWN_HANDLERS:
            return []
        if isinstance(value, ast.Lambda):
            return self._wrong_calls(module, value, seen)
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("signal.getsignal", "signal.signal"):
            return []  # the handler before, itself looked at where it was set
        if isinstance(value, ast.Call):
            handlers = [value.func, *value.args]
            return [line for one in handlers for line in self._wrong_in(module, one, seen)]
        if isinstance(value, ast.Name):
            return self._wrong_name(module, value, seen)
        return [ast.unparse(value)]

    def _wrong_name(self, module: Module, value: ast.Name, seen: set[str]) -> list[str]:
        name = value.id
        if name in seen:
            return []
        seen.add(name)
        origin = self._modules.get(module.imported.get(name, ""), module)
        if name in origin.functions:
            return self._wrong_calls(origin, origin.functions[name], seen)
        if name in module.parameters:  # looked at where it is passed
            return []
        assigned = module.assigned.get(name)
        return [line for one in assigned for line in self._wrong_in(module, one, seen)] if assigned else [name]

    def _wrong_calls(self, module: Module, function: Function, seen: set[str]) -> list[str]:
        found = []
        body = function.body if isinstance(function.body, list) else [function.body]
        for node in [node for part in body for node in walk(part)]:
            if isinstance(node, ast.With):
                found.append(ast.unparse(node.items[0]))
            if not isinstance(node, ast.Call) or ast.unparse(node.func) in LOCK_FREE:
                continue
            if isinstance(node.func, ast.Attribute):
                found += self._wrong_method(module, node.func, seen)
            else:
                found += self._wrong_in(module, node.func, seen)
        return found

    def _wrong_method(self, module: Module, called: ast.Attribute, seen: set[str]) -> list[str]:
        """`self.x()` is the own method; of another object only those of lists and texts are known to be safe."""
        if isinstance(called.value, ast.Name) and called.value.id == "self" and called.attr in module.functions:
            return self._wrong_calls(module, module.functions[called.attr], seen)
        return [] if called.attr in METHODS_OF_PLAIN_VALUES else [ast.unparse(called)]


def test_no_signal_handler_takes_a_lock(root: Path, modules: list[Path]) -> None:
    texts = {str(path): (root / path).read_text() for path in modules}
    found = {path: Module(ast.parse(text)) for path, text in texts.items() if "signal.signal(" in text}
    assert len(found) >= 5
    assert Code(found).wrong() == []


@pytest.mark.parametrize(
    "handler",
    ["lambda *_: stop.set()", "print", "say", "well(say)", "chosen", "logging.info", "lambda *_: lock.acquire()"],
)
def test_one_that_does_is_noticed(handler: str) -> None:
    text = (
        "def say(*_):\n    finish()\n\ndef finish():\n    log.error('ended')\n\n"
        "def well(handler):\n    return handler\n\nchosen = lambda *_: queue.put(1)\n"
        f"signal.signal(15, {handler})\n"
    )
    assert Code({"": Module(ast.parse(text))}).wrong()


def test_no_test_waits_for_a_process_whose_test_has_failed(root: Path) -> None:
    """`with subprocess.Popen(...)` does: `tests.children.started` kills it."""
    waits = re.compile(r"^ +with [^\n]*subprocess\.Popen\(", re.MULTILINE)
    assert [str(path) for path in (root / "tests").rglob("*.py") if waits.search(path.read_text())] == []
