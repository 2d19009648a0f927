"""What the calls return: the result of a loop, and a model."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CARD = '<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 1px solid #8884"></iframe>'


class Result:
    """The outcome of a loop. A notebook shows it as the loop's card.

    Attributes:
        project: The project's name.
        version: The number of the version that the loop registered; None if it registered none.
        promoted: Whether this version became the champion.
        reasons: Why, a sentence each.
        metric: The metric that decided.
        value: Its value on the test rows.
        champion_value: The same of the champion before; None if there was none.
        metrics: Further metrics by name.
        ran: False if nothing had changed: every step was up to date.
        dataset: The version of the data, in DVC.
        loop_id: The loop's name in Prefect, MLflow and the records.
        addresses: The loop's pages by name, such as `card`: `http://` while the platform runs, else `file://`.
        details: Everything that `loopline run --json` prints.
    """

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.details = dict(details)
        self.project: str = details["project"]
        self.version: str | None = None if details["version"] is None else str(details["version"])
        self.promoted: bool = details["decision"] == "promote"
        self.reasons: list[str] = details["reasons"]
        self.metric: str | None = details["metric"]
        self.value: float | None = details["value"]
        self.champion_value: float | None = details["champion_value"]
        self.metrics: dict[str, float] = details["metrics"]
        self.ran: bool = details["ran"]
        self.dataset: str | None = details["dataset"]
        self.loop_id: str | None = details["loop_id"]
        self.addresses: dict[str, str] = details["addresses"]

    @property
    def verdict(self) -> str:
        """`promoted` or `not promoted`."""
        return "promoted" if self.promoted else "not promoted"

    def __repr__(self) -> str:
        lines = [f"{self.project} version {self.version}: {self.verdict}", *(f"  {reason}" for reason in self.reasons)]
        if not self.ran:
            lines.insert(0, "Nothing to do: every step is up to date.")
        if self.value is not None:
            before = "" if self.champion_value is None else f" (champion {self.champion_value:.4f})"
            lines.append(f"  {self.metric} {self.value:.4f}{before}")
        return "\n".join(lines + [f"  {name} {address}" for name, address in self.addresses.items()])

    def _repr_html_(self) -> str:
        """The text, and below it the card in a frame of its own, which keeps its styles from the notebook's."""
        path = Path(self.details["card_file"]) if self.details["card_file"] else None
        text = f"<pre>{html.escape(repr(self))}</pre>"
        if path is None or not path.is_file():
            return text
        return text + CARD.format(page=html.escape(path.read_text(encoding="utf-8")))


class Model:
    """A version of a model, ready to predict.

    Attributes:
        project: The project's name.
        version: The version's number.
        inputs: The columns that it reads.
        targets: The columns that it predicts.
    """

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.project: str = details["project"]
        self.version: str = details["version"]
        self.inputs: list[str] = details["inputs"]
        self.targets: list[str] = details["targets"]

    def __repr__(self) -> str:
        return f"{self.project} version {self.version}: {', '.join(self.targets)} from {', '.join(self.inputs)}"

    def predict(self, frame: Any, *, log: bool = False, id: str | None = None) -> Any:
        """Return a prediction for each row, with the columns that `loopline predict` writes.

        By default nothing is stored, and monitoring does not see the rows. `log=True` adds each row once to the
        prediction log, as the command does: monitoring counts them, and `loopline label` joins labels by their ids.

        Args:
            frame: As of `run`, with the project's own raw columns. The target, if it is there, is not read.
            log: Whether the rows are added to the prediction log.
            id: With `log`, the column with the id of each row; default: ids are made.

        Returns:
            A frame of the same library, with the same index if the frame has one. A path gives a list with a dict for
            each row. Rows of a series that are no end of a window have no prediction.

        Raises:
            LooplineError: The model does not accept a column or a value.
        """
        from loopline.frames import as_file
        from loopline.session import ask

        question = {"call": "predict", "project": self.project, "version": self.version, "log": log, "id_column": id}
        with as_file(frame) as (file, read):
            answer = ask({**question, "file": file, "as_rows": read is None})
            return answer["rows"] if read is None else read(answer["out"])

    @contextlib.contextmanager
    def serve(self, port: int | None = None) -> Iterator[str]:
        """Serve the project's champion over HTTP while in the block; yields the address.

        As with `loopline serve`, promotions take effect by themselves.

        Args:
            port: Default: any that is free.

        Raises:
            LooplineError: The server does not start, such as on a port that is taken.
        """
        from loopline.session import session

        with session() as holder:  # until then this session stays, whatever later calls begin
            served = holder.ask({"call": "serve", "project": self.project, "port": port})
            try:
                yield served["url"]
            finally:
                if holder.is_alive():
                    holder.ask({"call": "end", "server": served["server"]})
