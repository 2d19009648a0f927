"""The `loopline` program: one group, each command imported only when it is called."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import inspect
import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from flows.prefect.sigterm import well_timed

COMMANDS = {
    "run": "Run the loop of a project.",
    "predict": "Predict every row of a file with the champion.",
    "suggest-labels": "List the predictions whose labels would help training most.",
    "label": "Add labels to predictions.",
    "export": "Write a version as a folder that needs only onnxruntime.",
    "serve": "Serve the champions over HTTP and gRPC.",
    "plan": "Show what a run would do, and which input changed.",
    "status": "Show every project: champion, last loop, steps to run.",
    "backtest": "Replay the past under other retraining policies.",
    "init": "Make a repository for a team's models.",
    "new": "Make a project from a CSV or Parquet file.",
    "trigger": "Ask for a retraining; the project's policy decides.",
    "monitor": "Check the champion's predictions: data contract, realised metric, drift.",
    "promote": "Make a registered version the champion.",
    "release": "Try a version as canary or shadow; show how each version does.",
    "rollback": "Make the previous champion champion again.",
    "adopt": "Take over a model that belongs to another workspace.",
    "reap": "Clean up after killed runs.",
    "gc": "Show or remove what nobody needs any more.",
    "migrate": "Move the databases to Postgres.",
    "doctor": "Check this machine and workspace.",
    "upgrade-check": "Check whether this version reads an older workspace.",
    "check-row": "Check a metric, launcher, source or family of your own.",
    "stage": "Run one data stage (as dvc.yaml does).",
    "schema": "Print the JSON Schema of project.yaml.",
    "env": "Print environment variables for the tools' own programs.",
    "gx": "Write what validation found as a context of Great Expectations.",
    "up": "Start the platform: servers, worker, pages, schedules.",
    "deploy": "Update Prefect's deployments of the projects.",
    "down": "End the platform.",
    "docs": "Open the documentation.",
    "client": "Write the Python package `loopline` as a wheel, for `import loopline`.",
    "completion": "Print the completion of a shell.",
}
HIDDEN = {"session": "flows.session_calls"}
"""Commands that no person calls, and their modules."""
FOLDERS = {
    "guides": ("schema", "env", "gx", "docs", "client", "completion"),
    "upkeep": ("doctor", "upgrade-check", "reap", "gc", "migrate"),
}
"""The commands in folders of `flows/commands`."""
COLLECT = (20_000, 10, 10)
"""Garbage is collected more rarely than by default: Great Expectations, MLflow and pandas make a million objects that
stay, and walking through them took 1.8 of the 10 CPU-s of a small `loopline run`; its peak memory stays the same."""


class _Lazy(click.Group):
    """A group with a table of command names and help lines; it imports a command only to call it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import `flows.commands.<name>`."""
        if cmd_name in HIDDEN:
            hidden: click.Command = importlib.import_module(HIDDEN[cmd_name]).command
            return hidden
        if cmd_name not in COMMANDS:
            return None
        folder = next((f".{folder}" for folder, names in FOLDERS.items() if cmd_name in names), "")
        module = importlib.import_module(f"flows.commands{folder}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return _with_examples_last(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands from the table; the completion of a command's options imports that command."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name]) for name in names] or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and help lines from the table, so that the help imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the most similar command if a command does not exist."""
        import difflib

        if args and args[0] not in {*COMMANDS, *HIDDEN} and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"no command {args[0]!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


def _with_examples_last(command: click.Command) -> click.Command:
    """Move the examples of a command's docstring below its options, a line each, so that they can be copied."""
    text, *examples = inspect.cleandoc(command.help or "").split("\n\nExample: ")
    if examples:
        command.help = text
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {' '.join(example.split())}" for example in examples)
    return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loopline")
def loopline() -> None:
    """Loopline: one spec file a model, one loop from raw data to a judged and promoted model.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate refused.

    Example: loopline run penguins
    """


def main() -> None:
    """Run the program; Loopline's own errors are printed in a line or two, without a traceback."""
    from models.errors import PREFIX, LooplineError
    from models.files import CURES, store_error

    gc.set_threshold(*COLLECT)
    faulthandler.enable(2, all_threads=False)  # if a user's compiled code crashes, this prints the line that called it
    ending: list[int | str | None] = []
    atexit.register(_leave, ending)  # registered first, it is called last

    def terminated(number: int, _: FrameType | None) -> None:
        """End the program by an exception, so that locks are released and the end is recorded."""
        ending.append(128 + number)
        sys.exit(ending[0])

    signal.signal(signal.SIGTERM, well_timed(terminated))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that a terminal cannot show must not end a loop
    try:
        _refuse_lost_folder()
        loopline()
    except LooplineError as error:
        click.echo(f"{PREFIX}{error}{_cure(error)}{_more(error)}", err=True)
        # An error during the shutdown, such as of an interrupted request, is not the reason why the program ends.
        ending.append(error.exit_code)
        sys.exit(ending[0])
    except SystemExit as end:
        ending.append(end.code)
        raise
    except Exception as error:
        if ending:
            click.echo(f"{PREFIX}ended by a signal; on the way out: {error}", err=True)
            sys.exit(ending[0])
        if isinstance(error, OSError) and not error.filename and _is_refused(sys.stdout):
            click.echo(f"{PREFIX}standard output takes no more ({error.strerror}): write it elsewhere", err=True)
            sys.exit(1)
        if isinstance(error, OSError) and error.errno in CURES:
            refusal = store_error(error, Path.cwd())
            click.echo(f"{PREFIX}{refusal}", err=True)
            sys.exit(refusal.exit_code)
        raise


def _leave(ending: list[int | str | None]) -> None:
    """End a program when its last act is done: to take down an interpreter with MLflow takes 1.5 CPU-s.

    Whoever sent a signal waits, and ends by SIGKILL what takes too long. Files that own code left open are written.
    """
    if ending and not isinstance(ending[0], str):  # a text is for the interpreter to print
        for stream in (sys.stdout, sys.stderr, *_left_open()):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(ending[0] or 0)


def _left_open() -> list[Any]:
    """Return the files that may be written still, if own code ran here: .1 CPU-s, to look at all objects."""
    own_reads = sys.modules.get("models.project_spec.own_reads")
    if own_reads is None or not own_reads.is_watching():
        return []
    gc.unfreeze()
    return [item for item in gc.get_objects() if issubclass(type(item), (io.TextIOWrapper, io.BufferedWriter))]


def _refuse_lost_folder() -> None:
    from models.errors import UsageError

    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder of this shell was deleted: change to another one (`cd`)") from error


def _is_refused(stream: TextIO) -> bool:
    """Return whether a stream accepts no output; if so, redirect it to null, or Python would flush it again at exit."""
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        return True
    return False


def _more(error: BaseException) -> str:
    """Return a line with the address of an error in the reference, empty if it has none."""
    from flows.console.error_address import address_of

    address = address_of(error)
    return f"\nmore: loopline docs {address}" if address else ""


def _cure(error: BaseException) -> str:
    """Return advice for a full disk if the error is a tool's own message about it, else an empty text."""
    from models.errors import with_causes
    from models.files import DISK_IS_FULL

    texts = "\n".join(map(str, with_causes(error)))
    is_full = any(words in texts for words in ("No space left on device", "database or disk is full"))
    return f"\n{DISK_IS_FULL}" if is_full and DISK_IS_FULL not in str(error) else ""


if __name__ == "__main__":
    main()
