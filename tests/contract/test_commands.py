"""Every command of the program can be found: it has help with examples, and the docs name it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from flows.cli import COMMANDS, loopline
from flows.commands.guides import docs
from models.errors import UsageError


def help_of(name: str) -> str:
    command = loopline.get_command(click.Context(loopline), name)
    assert command is not None
    return command.get_help(click.Context(command, info_name=name))


def examples_of(name: str) -> list[str]:
    return help_of(name).partition("Examples:\n")[2].splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_two_examples_that_can_be_called(name: str) -> None:
    """Each is a line of its own whose options exist and whose values are accepted."""
    examples = examples_of(name)
    assert len(examples) == 2, examples
    for example in examples:
        words = shlex.split(example.replace('"$(', "").replace(')"', " ;"))
        start = words.index("loopline")
        end = next((at for at, word in enumerate(words) if word in (";", "&&", "|", ">") and at > start), len(words))
        assert words[start + 1] == name, example
        command = loopline.get_command(click.Context(loopline), name)
        assert command is not None
        environment = dict(word.split("=", 1) for word in words[:start] if "=" in word)
        with mock.patch.dict("os.environ", environment):
            command.make_context(name, words[start + 2 : end])


def test_commands_of_mlflow_in_help_and_pages_exist(root: Path) -> None:
    """The help of `loopline env` showed `mlflow models list`, which there is not."""
    from mlflow.cli import cli

    pages = [path.read_text() for place in ("start", "how-to") for path in (root / "docs" / place).glob("*.md")]
    calls = re.findall(r"\bmlflow ([a-z]+) ([a-z-]+)", "\n".join([*map(help_of, COMMANDS), *pages]))
    assert calls
    for group, name in calls:
        assert name in cli.commands[group].commands, f"mlflow {group} {name}"  # type: ignore[attr-defined]


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
    files = {path.stem for path in (root / "flows" / "commands").rglob("*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in COMMANDS}


def test_help_of_the_program_lists_them_all() -> None:
    shown = loopline.get_help(click.Context(loopline, info_name="loopline"))
    assert all(name in shown for name in COMMANDS)
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate refused" in " ".join(shown.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_one_command_prints_the_completion_of_a_shell(shell: str) -> None:
    printed = CliRunner().invoke(loopline, ["completion", shell])
    assert printed.exit_code == 0
    assert f"_LOOPLINE_COMPLETE={shell}_complete" in printed.output


def test_a_shell_completes_commands_and_options() -> None:
    completion = ShellComplete(loopline, {}, "loopline", "_LOOPLINE_COMPLETE")
    assert [item.value for item in completion.get_completions([], "ro")] == ["rollback"]
    assert [item.value for item in completion.get_completions(["release", "x"], "--ca")] == ["--canary"]
    assert [item.value for item in completion.get_completions(["completion"], "z")] == ["zsh"]


def test_a_completed_name_imports_no_command() -> None:
    program = (
        "import sys; from flows.cli import loopline; from click.shell_completion import ShellComplete;"
        "ShellComplete(loopline, {}, 'loopline', '_LOOPLINE_COMPLETE').get_completions([], 's');"
        "assert not [name for name in sys.modules if name.startswith('flows.commands')]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_site_is_built_where_it_is_not_there(tmp_path: Path) -> None:
    """A new user's first `loopline docs` halted: the site is not in git."""
    (tmp_path / "zensical.toml").touch()
    site = tmp_path / "flows" / "site"

    def build(command: list[Path | str], **settings: object) -> subprocess.CompletedProcess[str]:
        assert (Path(command[0]).name, settings["cwd"]) == ("zensical", tmp_path)
        site.mkdir(parents=True)
        (site / "index.html").touch()
        return subprocess.CompletedProcess([], 0)

    with mock.patch.object(docs, "SITE", site), mock.patch("subprocess.run", build):
        assert "/flows/site/index.html" in CliRunner().invoke(loopline, ["docs", "--print"]).output


def test_the_site_is_opened_from_the_disk_or_its_cure_is_named(tmp_path: Path) -> None:
    with mock.patch.object(docs, "SITE", tmp_path / "flows" / "site"):
        with pytest.raises(UsageError, match="run `make setup`"):
            CliRunner().invoke(loopline, ["docs"], catch_exceptions=False)
        (tmp_path / "flows" / "site").mkdir(parents=True)
        (tmp_path / "flows" / "site" / "index.html").touch()
        with mock.patch("click.launch") as launch:
            assert CliRunner().invoke(loopline, ["docs", "--print"]).output.startswith("file://")
            assert not launch.called
            CliRunner().invoke(loopline, ["docs"])
            assert launch.call_args.args[0].endswith("flows/site/index.html")
        (tmp_path / "flows" / "site" / "reference").mkdir()
        (tmp_path / "flows" / "site" / "reference" / "errors.html").touch()
        printed = CliRunner().invoke(loopline, ["docs", "--print", "reference/errors#models.files"]).output
        assert printed.endswith("flows/site/reference/errors.html#models.files\n")
        with pytest.raises(UsageError, match="did you mean 'reference/errors'"):
            CliRunner().invoke(loopline, ["docs", "reference/eror"], catch_exceptions=False)
