"""A transformer reads the words of texts in their order, in training and in the exported graph alike."""

from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from models.data.encode import encode, write_tensors
from models.data.feeds import feeds, targets
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.export.export import export
from models.inference.portable import MODEL_FILE, ROW_BYTES_KEY
from models.inference.predict import predict
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model, Spec, Train
from models.training.job import TrainingJob
from models.training.rank import run_job
from tests.finished_jobs import METADATA

NUM_ROWS = 800
FILLERS = ["river", "stone", "window", "garden", "letter", "market", "silver", "winter"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a prepared table whose class says which of two words comes first, with other words between them."""
    folder = tmp_path_factory.mktemp("words")
    draw = np.random.default_rng(0)
    notes, classes = [], []
    for _ in range(NUM_ROWS):
        words = list(draw.choice(FILLERS, 9))
        first, second = sorted(draw.choice([1, 3, 5, 7], 2, replace=False))
        is_master = bool(draw.integers(2))
        words[first], words[second] = ("master", "servant") if is_master else ("servant", "master")
        notes.append(" ".join(words))
        classes.append("master" if is_master else "servant")
    subjects = [None if row % 50 == 0 else " ".join(draw.choice(FILLERS, 3)) for row in range(NUM_ROWS)]
    table = {"note": notes, "subject": subjects, "size": draw.normal(size=NUM_ROWS), "leader": classes}
    pq.write_table(pa.table(table), folder / "raw.parquet")
    data = {"source": "x", "target": "leader", "features": {"kinds": {"note": "text", "subject": "text"}}}
    spec = Spec.model_validate({"name": "t", "data": data})
    prepare(folder / "raw.parquet", spec, folder, folder / "prepared")
    (folder / "tensors").mkdir()
    write_tensors(folder / "prepared", folder / "tensors")
    return folder


def job_of(place: Path, folder: Path, model: Model, **train: int) -> TrainingJob:
    return TrainingJob(
        folder=folder / "job",
        prepared=place / "prepared",
        tensors={path.stem: path for path in (place / "tensors").glob("*.safetensors")},
        project=folder,
        model=model,
        train=Train(refit=False, lr=6e-3, **train),
        metric="roc_auc",
        direction="maximize",
        threads=1,
    )


def accuracy(place: Path, folder: Path, model: Model, **train: int) -> float:
    """Train a net, export it, and return the accuracy of the graph, which gets the texts, on the test rows."""
    torch.set_num_threads(1)
    job = job_of(place, folder, model, **train)
    run_job(job)
    answer = export(job.as_json(), str(folder / "export"), METADATA)
    assert answer["parity"] < answer["tolerance"]
    preparation = Preparation.load(place / "prepared")
    chances = predict(folder / "export" / MODEL_FILE, feeds(place / "prepared", "test", preparation), preparation)
    return float(((chances > 0.5) == targets(place / "prepared", "test")).mean())


def row_bytes_of(folder: Path) -> list[str]:
    properties = onnx.load(folder / "export" / MODEL_FILE, load_external_data=False).metadata_props
    return [each.value for each in properties if each.key == ROW_BYTES_KEY]


@pytest.mark.wide
def test_a_transformer_learns_the_order_of_words_that_n_grams_do_not_see(place: Path, tmp_path: Path) -> None:
    arguments = {"width": 32, "layers": 1, "word_dropout": 0.1}
    assert accuracy(place, tmp_path, Model(net="transformer", arguments=arguments), epochs=14, batch=64) > 0.9
    sizes, (row_bytes,) = Sizes.of(Preparation.load(place / "prepared"), "transformer"), row_bytes_of(tmp_path)
    assert int(row_bytes) == 4 * 4 * (1 + sizes.num_numeric + sizes.num_words) ** 2, "four heads of all pairs, float32"


def test_a_net_that_reads_features_alone_does_not(place: Path, tmp_path: Path) -> None:
    assert accuracy(place, tmp_path, Model(net="mlp", arguments={"hidden": 32}), epochs=3, batch=64) < 0.7


def test_words_of_two_columns_have_indices_of_their_own(place: Path) -> None:
    preparation = Preparation.load(place / "prepared")
    words = encode(place / "prepared", "train")["words"]
    assert words.shape == (preparation.rows["train"], preparation.num_words, 2)
    note, subject = preparation.texts
    assert (words[:, : note.length].max(axis=(0, 1)) < np.array([2 + len(note.words), 2 + len(note.stems)])).all()
    own = words[:, note.length :, 0]
    assert own[own > 1].min() == 2 + len(note.words)
    assert own.max() == 1 + len(note.words) + len(subject.words)
    assert (own == 0).all(axis=1).any(), "a missing text has no word"


def test_an_own_net_gets_the_words_by_name(place: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n"
        "    def __init__(self, vocabularies, num_words, num_outputs):\n"
        "        super().__init__()\n"
        "        self.embed = torch.nn.Embedding(vocabularies[0], 4)\n"
        "        self.head = torch.nn.Linear(4 * num_words, num_outputs)\n\n"
        "    def forward(self, words):\n"
        "        return self.head(self.embed(words[:, :, 0]).flatten(1))\n"
    )
    assert accuracy(place, tmp_path, Model(net="./net.py:Net"), epochs=20, batch=64) > 0.75
