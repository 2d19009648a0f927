"""The prediction logger: predictions and labels are on disk before the caller gets the response."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from models.errors import StoreError
from models.files import read_json
from models.inference.input_schema import InputRows
from models.inference.loaded_model import LoadedModel, Prediction
from models.project_spec.serve import PredictionLogging
from models.serving.records import PredictionRecorder, label_record, part_of, sampled
from tasks.host.logs import Repeated
from tasks.release.settings import ServerSettings
from tasks.state.segments import KINDS, SegmentWriter, segments, segments_folder

_log = logging.getLogger("loopline.serve")
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit that holds a UUID's variant, by a random digit."""


def new_ids(count: int) -> list[str]:
    """Return new ids that sort by time: UUIDs of version 7.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = (time.time_ns() // 1_000_000).to_bytes(6).hex()
    start, drawn = f"{milliseconds[:8]}-{milliseconds[8:]}-7", os.urandom(10 * count).hex()
    return [
        f"{start}{drawn[i : i + 3]}-{_VARIANT[drawn[i + 3]]}{drawn[i + 4 : i + 7]}-{drawn[i + 7 : i + 19]}"
        for i in range(0, 20 * count, 20)
    ]


class PredictionLogger:
    """Writes one process's predictions and labels of a project into segments; the compactor moves them into the logs.

    If the server was started with the project's current spec, the `serve.log` of that spec applies; else that of the
    answering version's spec.
    """

    def __init__(self, settings: ServerSettings, project: str) -> None:
        state = settings.state(project)
        self._project = project
        self._spec_rules = settings.logs.get(project)
        self._folders = [segments_folder(state, kind) for kind in KINDS]
        self._predictions, self._labels = map(SegmentWriter, self._folders)
        self._rules: dict[str, tuple[PredictionLogging, PredictionRecorder]] = {}
        self._trouble = Repeated(_log)

    def enter(
        self, served: LoadedModel, ids: Sequence[str], rows: InputRows, answer: Prediction, *, whole: bool = False
    ) -> bool:
        """Log a prediction as the spec says; `whole`: with all inputs that a shadow needs.

        Returns False if the log cannot be written and the spec says to answer all the same.

        Raises:
            StoreError: The log cannot be written, and the spec says to refuse then.
        """
        rules, recorder = self._rules.get(served.version) or self._rules_of(served)
        if rules.share < 1:
            places = sampled(ids, rules.share)
            if not places:
                return True
            rows, answer = part_of(rows, answer, places)
            ids = [ids[place] for place in places]
        try:
            self._predictions.write(recorder.record(ids, time.time_ns() // 1000, rows, answer, whole=whole))
        except StoreError as error:
            self._say(error)
            if rules.when_full == "refuse":
                raise
            return False
        return True

    def note(self, pairs: Sequence[tuple[str, str]], giver: str) -> None:
        """Log labels, as pairs `(id, label)`, with their source `giver`.

        Raises:
            StoreError: The labels cannot be written.
        """
        try:
            self._labels.write(label_record(pairs, time.time_ns() // 1000, giver))
        except StoreError as error:
            self._say(error)
            raise

    def waiting_bytes(self) -> int:
        """Return how many bytes of this project's segments, of all server processes, wait for the compactor."""
        waiting = [segment for folder in self._folders for segment in segments(folder)]
        return sum(max(0, segment.size - segment.moved) for segment in waiting)

    def close(self) -> None:
        """Close the segments; the compactor moves them."""
        self._predictions.close()
        self._labels.close()

    def _rules_of(self, served: LoadedModel) -> tuple[PredictionLogging, PredictionRecorder]:
        serve = read_json(served.folder / "spec.json").get("serve") or {}
        rules = PredictionLogging.model_validate(
            serve.get("log") or {} if self._spec_rules is None else self._spec_rules
        )
        self._rules[served.version] = rules, PredictionRecorder(served.preparation, rules.redact)
        return self._rules[served.version]

    def _say(self, error: StoreError) -> None:
        self._trouble.log(logging.ERROR, f"{self._project}: the log cannot be written", error)
