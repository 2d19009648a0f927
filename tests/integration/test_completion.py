"""Real shells complete a command, an option and a project by what `loopline completion` prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = {"loopline ro": "rollback", "loopline release x --ca": "--canary", "loopline plan fli": "flights"}
BASH = """
eval "$(loopline completion bash)"
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _loopline_completion loopline
    echo "${COMPREPLY[@]}"
done
"""
ZSH = """
eval "$(loopline completion zsh)"
whence compdef > /dev/null || exit 1
_describe() { print -r -- ${${(P)3}%%:*} }
compadd() { print -r -- ${(P)@[-1]} }
for line in "$@"; do
    words=(${=line})
    CURRENT=$#words
    _loopline_completion
done
"""
FISH = """
loopline completion fish | source
for line in $argv
    complete -C $line | string split -f 1 \\t
end
"""
CALLS = {
    "bash": ["bash", "--norc", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", FISH],
}


@pytest.mark.parametrize("shell", CALLS)
def test_a_shell_completes_a_command_an_option_and_a_project(tmp_path: Path, shell: str) -> None:
    """A zsh without `compinit` in its start-up file said `command not found: compdef`."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}: `apt-get install {shell}`")
    programs = Path(sys.executable).parent
    environ = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LOOPLINE_HOME": str(ROOT),
    }
    done = subprocess.run(
        [*CALLS[shell], *LINES], env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.split() == list(LINES.values()), done.stderr
