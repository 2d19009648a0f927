"""What a wheel and its sources must hold and ask for: hatchling runs this before it builds either."""

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LOCKS = {
    "requirements.lock": "",
    "requirements.estimators.lock": "estimators",
    "requirements.kubernetes.lock": "kubernetes",
}
"""The lock files of a wheel, by the extra that installs what they pin."""


class PinnedBuild(BuildHookInterface[Any]):
    """Checks for the site of the documentation, and pins every package that the wheel asks for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Leave an editable installation alone: it is the clone, which may lack the site and has lock files."""
        if version != "standard":
            return
        if not (Path(self.root) / "flows" / "site" / "index.html").exists():
            raise FileNotFoundError("flows/site: no index.html: `make docs` writes it, then build the wheel again")
        for name, extra in LOCKS.items():
            build_data["dependencies"] += pins(Path(self.root) / name, extra)
            if self.target_name == "wheel":
                build_data["force_include"][name] = f"loopline/program/{name}"


def pins(lock: Path, extra: str) -> list[str]:
    """Return the packages of a lock file as requirements, for all who install the wheel or for those with an extra."""
    found = re.findall(r"(?m)^([A-Za-z0-9]\S*==\S+)(?: ; ([^\\\n]+))?", lock.read_text())
    clause = f"extra == '{extra}'" if extra else ""
    markers = [[f"({marker.strip()})"] * bool(marker) + [clause] * bool(clause) for _, marker in found]
    return [
        " ; ".join([pin, *[" and ".join(parts)] * bool(parts)]) for (pin, _), parts in zip(found, markers, strict=True)
    ]
