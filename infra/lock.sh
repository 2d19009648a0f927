#!/usr/bin/env bash
# Writes the lock files anew: every package pinned with its hashes, no address in them. requirements.lock holds what the
# program needs, and the wheel asks for exactly that; requirements.NAME.lock what an extra of that name adds to it, with
# requirements.dev.lock for the extras dev and docs, which a clone has.
# torch and what torch alone pulls in (CUDA wheels, triton) are left out of the hashes: which build of
# torch==2.13.0 a machine gets (CPU or CUDA) is decided where it is installed, and its wheel pins the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
compile() { # compile FILE OPTION...
    "$UV" pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet "${@:2}" -o "$1"
}
cat requirements*.lock > all.new # what is pinned stays, unless `infra/lock.sh --upgrade` is asked for
compile all.new --extra dev --extra docs --extra kubernetes --extra estimators "$@"
compile requirements.lock.new --constraint all.new
compile requirements.dev.lock.new --constraint all.new --extra dev --extra docs
compile requirements.kubernetes.lock.new --constraint all.new --extra kubernetes
compile requirements.estimators.lock.new --constraint all.new --extra estimators
python3 - <<'PY'
import re
from pathlib import Path

HEAD = "# Written by infra/lock.sh from pyproject.toml; do not edit.\n"
BASE = Path("requirements.lock.new")
torch_only = re.compile(r"^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")


def written(new):
    """Return the blocks that uv has written, which are a pin with its marker and hashes."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", new.read_text())
    return [block for block in blocks if block.strip() and not torch_only.match(block)]


base = written(BASE)
for new in sorted(Path().glob("requirements*.lock.new")):
    blocks = ["torch==2.13.0\n", *base] if new == BASE else [block for block in written(new) if block not in base]
    new.with_suffix("").write_text(HEAD + "".join(blocks))
PY
rm -f -- *.new
