"""A registered version as MLflow's `pyfunc` loads it: rows in, rows out, by ONNX Runtime alone.

MLflow's own loader of the ONNX flavour hands pandas' text columns to ONNX Runtime as they are, which refuses them, and
cannot put probabilities, a column a class, into its data frame (mlflow 3.17.2, pandas 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.export.reading import BITS_PER_CHAR, NEXT_CHARACTER, PROBABILITY, read

if TYPE_CHECKING:
    import pandas as pd


class Predictor:
    """The graph and the names of its classes."""

    def __init__(self, folder: Path) -> None:
        from models.export.predict import session

        self._session = session(folder / "model.onnx")
        preparation = Preparation.load(folder)
        self._classes = preparation.target.classes or []
        self._characters = preparation.characters

    def predict(
        self, model_input: pd.DataFrame | Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Predict rows.

        Args:
            model_input: A column an input, or arrays by input name; None or NaN for missing. Text: a column `text`, of
                any lengths, each read as if it followed the end of a line.
            params: None are known.

        Returns:
            Classification: `label`, then `probability_<class>` for each class. Regression: `prediction`. Text: the
            likeliest `next_character` with its `probability`, and the `bits_per_char` of the text itself.
        """
        import pandas as pd

        del params
        if self._characters is not None:
            texts = _typed(model_input["text"], "tensor(string)")
            rows = [read(self._session, text, self._characters) for text in texts]
            return pd.DataFrame(rows, columns=[NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR])
        feed = {entry.name: _typed(model_input[entry.name], entry.type) for entry in self._session.get_inputs()}
        names = [entry.name for entry in self._session.get_outputs()]
        found = dict(zip(names, self._session.run(names, feed), strict=True))
        if "prediction" in found:
            return pd.DataFrame({"prediction": found["prediction"]})
        chances = {f"probability_{name}": found["probabilities"][:, at] for at, name in enumerate(self._classes)}
        return pd.DataFrame({"label": found["label"], **chances})


def _typed(values: Any, kind: str) -> np.ndarray:
    if "string" in kind:
        plain = np.asarray(values, dtype=object)
        return np.array(["" if value is None or value != value else str(value) for value in plain], dtype=object)
    dtypes: dict[str, Any] = {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(uint8)": np.uint8}
    return np.asarray(values, dtype=dtypes.get(kind, np.int64))


def _load_pyfunc(path: str) -> Predictor:
    """What MLflow calls: `path` is the model's file, beside which `preparation.json` lies."""
    given = Path(path)
    return Predictor(given if given.is_dir() else given.parent)
