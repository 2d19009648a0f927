#!/usr/bin/env bash
# Writes the lock files anew: every package pinned with its hashes, no address in them. requirements.lock holds what every
# environment has, requirements.estimators.lock what the extra of that name adds to it.
# torch and what torch alone pulls in (CUDA wheels, triton) are left out of the hashes: which build of
# torch==2.13.0 a machine gets (CPU or CUDA) is decided where it is installed, and its wheel pins the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
compile() { # compile LOCK OPTION...
    cp "$1" "$1.new" # what is pinned stays, unless `infra/lock.sh --upgrade` is asked for
    "$UV" pip compile pyproject.toml --extra dev --extra docs --extra kubernetes --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet "${@:2}" -o "$1.new"
}
compile requirements.lock "$@"
compile requirements.estimators.lock --extra estimators --constraint requirements.lock.new "$@"
python3 - <<'PY'
import re
from pathlib import Path


def written(lock):
    """Return the blocks that uv has written for a lock file, by their packages and versions."""
    new = Path(f"{lock}.new")
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", new.read_text())
    new.unlink()
    return {block.partition(" ")[0]: block for block in blocks if block.strip()}


torch_only = re.compile(r"^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
base = written("requirements.lock")
kept = [block for name, block in base.items() if not torch_only.match(name)]
head = "# Written by infra/lock.sh from pyproject.toml; do not edit.\n"
Path("requirements.lock").write_text(head + "torch==2.13.0\n" + "".join(kept))
added = [block for name, block in written("requirements.estimators.lock").items() if name not in base]
Path("requirements.estimators.lock").write_text(head + "".join(added))
PY
