"""Every command of the program can be found: it has help with an example, and the docs name it."""

from pathlib import Path

import click
import pytest

from flows.cli import COMMANDS, loopline


def help_of(name: str) -> str:
    command = loopline.get_command(click.Context(loopline), name)
    assert command is not None
    return command.get_help(click.Context(command, info_name=name))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_with_an_example(name: str) -> None:
    shown = help_of(name)
    assert f"Example: loopline {name}" in shown or f'Example: eval "$(loopline {name})"' in shown, shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    command = loopline.get_command(click.Context(loopline), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"loopline {name} {parameter.opts[0]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_docs_name_it(root: Path, name: str) -> None:
    assert f"loopline {name}" in (root / "docs" / "start" / "commands.md").read_text()


def test_every_command_file_is_a_command(root: Path) -> None:
    files = {path.stem for path in (root / "flows" / "commands").glob("*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in COMMANDS}


def test_help_of_the_program_lists_them_all() -> None:
    shown = loopline.get_help(click.Context(loopline, info_name="loopline"))
    assert all(name in shown for name in COMMANDS)
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate refused" in " ".join(shown.split())
