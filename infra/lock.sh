#!/usr/bin/env bash
# Writes requirements.lock anew: every package pinned with its hashes, no address in it.
# torch and what torch alone pulls in (CUDA wheels, triton) are left out of the hashes: which build of
# torch==2.13.0 a machine gets (CPU or CUDA) is decided where it is installed, and its wheel pins the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
cp requirements.lock requirements.lock.new # what is pinned stays, unless `infra/lock.sh --upgrade` is asked for
"$UV" pip compile pyproject.toml --extra dev --extra docs --extra kubernetes --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet "$@" -o requirements.lock.new
python3 - <<'PY'
import re
from pathlib import Path

text = Path("requirements.lock.new").read_text()
blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
torch_only = re.compile(r"^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
kept = [block for block in blocks if block.strip() and not torch_only.match(block)]
head = "# Written by infra/lock.sh from pyproject.toml; do not edit.\ntorch==2.13.0\n"
Path("requirements.lock").write_text(head + "".join(kept))
Path("requirements.lock.new").unlink()
PY
