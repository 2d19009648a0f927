"""A version in the form that MLflow's clients load: the ONNX flavour, with the code that reads rows."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Iterable
from importlib.metadata import version as metadata_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import PREPARATION_FILE
from models.files import read_json, write_text
from models.inference import portable
from models.inference.portable import COLUMN, LABELS, MODEL_FILE

if TYPE_CHECKING:
    import pandas as pd

REQUIREMENTS = ("onnxruntime", "numpy", "pandas")
"""The packages that the model's code imports; a version names those that made it, exactly."""
CODE = "code"
COLUMNS = "loopline.inputs"
"""Key of the inputs and their types in the metadata of `MLmodel`."""


def onnx_model(folder: Path, files: dict[str, Path], exported: dict[str, Any], metadata: dict[str, str]) -> Path:
    """Write the folder of an MLflow model: ONNX flavour, signature, an input example, and our own files.

    Args:
        folder: The folder to create.
        files: The version's files by name; they include `model.onnx` and `preparation.json`.
        exported: The result of the export step: the graph's inputs and an example of them.
        metadata: Stored in `MLmodel`.
    """
    import mlflow.onnx
    import onnx
    import pandas as pd
    from mlflow.models import Model

    proto, example = (
        onnx.load(str(files[MODEL_FILE])),
        _example(exported, read_json(files[PREPARATION_FILE]).get("dates", {})),
    )
    predictor = portable.Predictor(portable.open_session(files[MODEL_FILE]))
    mlflow.onnx.save_model(
        proto,
        str(folder),
        signature=model_signature(exported["inputs"], pd.DataFrame(predictor.predict(example))),
        input_example=example,
        conda_env=_environment(),
        save_as_external_data=False,
        metadata={**metadata, COLUMNS: {part["name"]: part["dtype"] for part in exported["inputs"]}},
    )
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
    described = Model.load(str(folder))
    loaded_by = {"loader_module": _write_code(folder / CODE), "code": CODE, "config": {COLUMN: ""}}
    described.flavors["python_function"] |= loaded_by
    described.save(str(folder / "MLmodel"))
    return folder


def _environment() -> dict[str, Any]:
    """Return what the model needs; told less, MLflow looks for pip here, which a tool environment of uv lacks."""
    pinned = [f"{name}=={metadata_version(name)}" for name in REQUIREMENTS]
    python = f"python={platform.python_version()}"
    return {"name": "mlflow-env", "channels": ["conda-forge"], "dependencies": [python, "pip", {"pip": pinned}]}


def _write_code(folder: Path) -> str:
    """Write the code by which MLflow runs the model without Loopline; return the module's name.

    The name depends on the content: a process that loads two versions must not run one with the code of the other.
    """
    from models.export.bundle import portable_code

    suffix = f"_{hashlib.sha256(''.join(portable_code().values()).encode()).hexdigest()[:8]}"
    files = portable_code(suffix)
    for name, text in files.items():
        write_text(folder / name, text)
    return next(iter(files)).removesuffix(".py")


def _example(exported: dict[str, Any], dates: Iterable[str]) -> Any:
    """Return a few rows as MLflow's clients send them: a data frame of columns, or arrays by name.

    The columns of `data.dates` hold times: a number would be read as a date in their form.
    """
    import pandas as pd

    from models.export.signature import feed_of

    feed = feed_of(exported["input_example"], exported["inputs"])
    if any(values.ndim > 1 for values in feed.values()):
        return feed
    frame = pd.DataFrame(feed)
    return frame.assign(**{name: pd.to_datetime(frame[name], unit="s") for name in dates if name in frame})


def model_signature(inputs: list[dict[str, Any]], answer: pd.DataFrame) -> Any:
    """Return the model's signature: the outputs of the model's code, and the inputs if they are tensors.

    Columns are not declared: MLflow would check their types before the model's code reads them, and refuse the whole
    numbers of a column of numbers, and a category that pandas read as a number. The code has the one rule for values.
    """
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import Array

    from models.export.signature import DTYPES

    tensors = [
        TensorSpec(
            np.dtype(DTYPES[part["dtype"]]),
            tuple(-1 if not isinstance(size, int) else size for size in part["shape"]),
            part["name"],
        )
        for part in inputs
    ]
    is_table = all(len(part["shape"]) == 1 for part in inputs)
    inferred = infer_signature(model_output=answer.drop(columns=LABELS, errors="ignore")).outputs
    lists = [ColSpec(Array(DataType.string), LABELS)] if LABELS in answer else []
    return ModelSignature(None if is_table else Schema(tensors), Schema([*lists, *inferred.inputs]))
