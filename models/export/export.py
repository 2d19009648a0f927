"""Export: writes one ONNX file from a finished job and checks it against the trained model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from models.data.feeds import feed_at, spread_positions
from models.data.preparation import Preparation
from models.data.text import text_of
from models.export.class_head import choose_class_head
from models.export.core import core_of
from models.export.graph import assemble
from models.export.parity import parity
from models.export.quantile_shifts import choose_quantile_shifts
from models.export.signature import input_example, served_text, signature, text_example
from models.export.trained import net_of, num_validation_examples, validation_predictions
from models.files import storing, write_bytes
from models.inference.portable import MODEL_FILE
from models.training.ensemble import is_bagged, members_of
from models.training.job import TrainingJob

PARITY_EXAMPLES = 2000
PARITY_WINDOWS = 100
PROMPT = 64


def export(job: dict[str, Any], out: str, metadata: dict[str, str]) -> dict[str, Any]:
    """Write `model.onnx` and `preparation.json` into a folder; arguments and result are plain data for a child process.

    The same weights, preparation and metadata give the same bytes.

    Args:
        job: The finished `Job` as JSON; its folder holds the weights.
        out: The folder to write into.
        metadata: Keys and values for the file's metadata; no times and no run ids, because they change the hash.

    Returns:
        `path`, `sha256`, `size_bytes`; `inputs` (name, dtype, shape); `input_example`; `parity` and `max_difference`
        (the worst difference), `tolerance`, `num_examples`, `label_flips`; of classes `class_head` (calibration and
        threshold), of quantiles `quantile_shifts`; `knows_validation`: whether a member of an ensemble has learnt from
        the validation rows, `has_learnt_validation`: or a single model, fitted again. For text, inputs and example are
        those of the MLflow model, which takes a column of text, and `samples` is added.

    Raises:
        StoreError: The weights cannot be read, or the folder not written.
        UserCodeError: The net cannot be exported.
        TrainingError: The graph's predictions differ from the trained model's.
    """
    finished = TrainingJob.from_json(job)
    preparation = Preparation.load(finished.prepared)
    core, output = core_of(finished, preparation)
    preparation, class_head = choose_class_head(finished, preparation)
    preparation, quantile_shifts = choose_quantile_shifts(finished, preparation)
    model = assemble(preparation, core, output, metadata)
    content = model.SerializeToString(deterministic=True)
    path = Path(out) / MODEL_FILE
    write_bytes(path, content)
    with storing(path):
        preparation.save(Path(out))
    result = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    result |= class_head | quantile_shifts
    knows_validation = is_bagged(finished) or any(member.job.is_refitted for member in members_of(finished))
    result |= {"knows_validation": knows_validation, "has_learnt_validation": knows_validation or finished.is_refitted}
    result |= _prove(path, finished, preparation)
    if preparation.characters is not None:
        return {**result, **served_text(), "samples": _samples(finished, preparation)}
    return {**result, "inputs": signature(model.graph.input)}


def _samples(job: TrainingJob, preparation: Preparation) -> list[dict[str, Any]]:
    """Return the net's continuations of the beginning of the validation text."""
    from models.export.samples import write_samples

    characters = preparation.required_characters
    prompt = text_of(job.prepared, "validation", characters)[: min(PROMPT, characters.length // 2)]
    samples = write_samples(net_of(job, preparation), characters, prompt, job.train.seed)
    return [sample.model_dump() for sample in samples]


def _prove(path: Path, job: TrainingJob, preparation: Preparation) -> dict[str, Any]:
    """Measure parity on validation rows spread evenly over the split; the result includes an input example."""
    count = num_validation_examples(job.tensors)
    limit = PARITY_WINDOWS if preparation.characters else PARITY_EXAMPLES
    positions = spread_positions(count, limit)
    rows = [feed_at(job.prepared, "validation", preparation, positions)]
    nets = [member.job.model.net for member in members_of(job)] or [job.model.net]
    result = parity(path, rows, validation_predictions(job, preparation, positions), preparation, nets)
    example = text_example(rows[0]["text"]) if preparation.characters else input_example(rows[0])
    return {**result.model_dump(), "parity": result.max_difference, "input_example": example}
