"""MLflow `pyfunc` loader of a registered version: takes rows, returns rows, and needs only ONNX Runtime.

This file is stored with the version and is loaded where Loopline is not installed: it imports nothing of Loopline.
MLflow's own loader of the ONNX flavour passes pandas' text columns to ONNX Runtime unchanged, which refuses them, and
cannot put probabilities, one column for each class, into its data frame (mlflow 3.17.2, pandas 3.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnxruntime
    import pandas as pd

NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR = "next_character", "probability", "bits_per_char"


class Predictor:
    """Predicts rows of raw columns with a graph.

    Args:
        session: Of `model.onnx`.
        preparation: The content of `preparation.json`: the names of the classes, and how a text is read.
    """

    def __init__(self, session: onnxruntime.InferenceSession, preparation: Mapping[str, Any]) -> None:
        self._session = session
        self._classes = preparation["target"]["classes"] or []
        self._characters = preparation["characters"]

    def predict(
        self, model_input: pd.DataFrame | Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Predict rows.

        Args:
            model_input: A column for each input, or arrays by input name; None or NaN for missing. Text: a column
                `text`, of
                any lengths; each text is read as if it followed the end of a line.
            params: Ignored; there are no parameters.

        Returns:
            Classification: `label`, then `probability_<class>` for each class. Regression: `prediction`. Text: the
            most probable `next_character` with its `probability`, and the `bits_per_char` of the text itself.
        """
        import pandas as pd

        del params
        if self._characters is not None:
            alphabet, length = self._characters["alphabet"], self._characters["length"]
            texts = _typed(model_input["text"], "tensor(string)")
            rows = [read(self._session, text, alphabet, length) for text in texts]
            return pd.DataFrame(rows, columns=[NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR])
        feed = {entry.name: _typed(model_input[entry.name], entry.type) for entry in self._session.get_inputs()}
        names = [entry.name for entry in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(names, feed), strict=True))
        if "prediction" in outputs:
            return pd.DataFrame({"prediction": outputs["prediction"]})
        chances = {f"probability_{name}": outputs["probabilities"][:, at] for at, name in enumerate(self._classes)}
        return pd.DataFrame({"label": outputs["label"], **chances})


def read(session: onnxruntime.InferenceSession, text: str, alphabet: str, length: int) -> tuple[str, float, float]:
    """Return the most probable next character, its probability, and the mean bits per character of the text itself.

    The text is read as if it followed the end of a line. A text longer than a window of `length` characters is read in
    windows, as in the evaluation. The bits of an empty text are NaN.
    """
    points = np.frombuffer(f"\n{text}".encode("utf-32-le"), dtype="<u4").astype(np.int64)
    bits = [
        session.run(["bits"], {"text": points[None, start : start + length + 1]})[0][0]
        for start in range(0, len(points) - 1, length)
    ]
    (chances,) = session.run(["log_probabilities"], {"text": points[None, -length:]})
    likeliest = int(chances[0, -1, 1:].argmax())
    mean = float(np.concatenate(bits).mean()) if bits else float("nan")
    return alphabet[likeliest], float(np.exp(chances[0, -1, 1 + likeliest])), mean


def open_session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session whose idle threads sleep: spinning costs four times the CPU of a small model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _typed(values: Any, kind: str) -> np.ndarray:
    if "string" in kind:
        plain = np.asarray(values, dtype=object)
        return np.array(["" if value is None or value != value else str(value) for value in plain], dtype=object)
    dtypes: dict[str, Any] = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(uint8)": np.uint8}
    return np.asarray(values, dtype=dtypes.get(kind, np.int64))


def _load_pyfunc(path: str) -> Predictor:
    """Load the model for MLflow; `path` is the model's file, and `preparation.json` lies beside it."""
    model_folder = Path(path)
    folder = model_folder if model_folder.is_dir() else model_folder.parent
    preparation = json.loads((folder / "preparation.json").read_text(encoding="utf-8"))
    return Predictor(open_session(folder / "model.onnx"), preparation)
