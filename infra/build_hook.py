"""What a wheel must hold: hatchling runs this before it builds."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):
    """Refuses a wheel without the site of the documentation, which `loopline docs` shows."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Check what git does not hold; an editable installation is the clone and may lack it."""
        if version == "standard" and not (Path(self.root) / "flows" / "site" / "index.html").exists():
            raise FileNotFoundError("flows/site: no index.html: `make docs` writes it, then build the wheel again")
