"""Equal rows are in one split and in one fold: nothing is learnt by heart from one copy and found again in another.

Pure noise, each row twice: 69 % of the test rows were in training with their label; trees reached an ROC AUC of .90.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.data.encode import write_tensors
from models.data.prepare import prepare_table, write_rows
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.gates import MOST_COPIES
from models.judge.held_out import with_clusters
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Spec
from models.project_spec.judge import Judge
from models.training.batches.examples import open_examples
from models.training.job import TrainingJob

NUM = 300
INPUTS = ("a", "b", "word")


def rows(copies=2, num=NUM):
    """Noise with an id of its own in each row; every row stands there `copies` times."""
    rng = np.random.default_rng(0)
    once = {"a": rng.normal(size=num), "b": rng.normal(size=num), "word": rng.integers(0, 40, num).astype(str)}
    once |= {"y": np.where(rng.random(num) < 0.5, "p", "q"), "key": np.arange(num), "time": np.arange(num)}
    table = pa.table({name: np.tile(values, copies) for name, values in once.items()})
    return table.append_column("id", pa.array(np.arange(num * copies)))


def spec_of(split, **data):
    drop = {"features": {"drop": ["key", "time", *([] if "id" in data else ["id"])], **data.pop("features", {})}}
    return Spec.model_validate(
        {"name": "t", "data": {"source": "d.csv", "target": "y", "split": split, **drop, **data}}
    )


def prepared(table, split, **data):
    """Return the prepared rows with the number of their group of equal rows, and the preparation."""
    made, preparation = prepare_table(table, spec_of(split, **data), Path())
    position = made.column("__row").to_numpy()
    return made, position % NUM, preparation


SPLITS = [
    {"by": "random"},
    {"by": "stratified"},
    {"by": "hash", "column": "key"},
    {"by": "group", "column": "key"},
    {"by": "random", "column": "key"},
    {"by": "time", "column": "time"},
]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: "-".join(split.values()))
@pytest.mark.parametrize("identified", [{}, {"id": "id"}], ids=["by values", "by id"])
def test_no_group_of_equal_rows_is_divided_by_a_split(split, identified):
    made, group, preparation = prepared(rows(), split, **identified)
    code = made.column("__split").to_numpy()
    assert all(len(set(code[group == number])) == 1 for number in range(NUM))
    assert (preparation.equal_rows.num_rows, preparation.equal_rows.share) == (2 * NUM, 0.0)
    shares = np.bincount(code, minlength=3) / len(code)
    assert shares == pytest.approx([0.7, 0.15, 0.15], abs=0.06)


@pytest.mark.parametrize("split", [{"by": "position"}, {"by": "group", "column": "id"}, {"by": "time", "column": "id"}])
def test_a_split_that_divides_copies_says_so_and_a_first_model_waits(split):
    made, group, preparation = prepared(rows(), split)
    equal, code = preparation.equal_rows, made.column("__split").to_numpy()
    known = np.isin(group[code == 2], group[code != 2])
    assert equal.num_in_training == known.sum() > 0
    assert not equal.together
    assert equal.share > MOST_COPIES
    assert f"{equal.share:.1%} of the test rows equal a training or validation row" in equal.text


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_a_project_keeps_its_split_if_the_spec_or_its_record_says_so(by):
    before, _, _ = prepared(rows(), {"by": by, "equal_rows": "apart"})
    made, _, preparation = prepared(rows(), {"by": by, "equal_rows": "apart"})
    assert made.column("__split").equals(before.column("__split"))
    assert preparation.equal_rows.share > 0.5
    assert "__key" not in made.column_names
    once, _, alone = prepared(rows(copies=1), {"by": by})
    same, _, _ = prepared(rows(copies=1), {"by": by, "equal_rows": "apart"})
    assert once.column("__split").equals(same.column("__split"))
    assert alone.equal_rows is None


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_a_copy_that_comes_later_takes_the_split_of_its_row(by):
    table = rows()
    first, _, _ = prepared(table.slice(0, NUM), {"by": by}, id="id")
    whole, _, _ = prepared(table, {"by": by}, id="id")
    if by == "random":
        assert whole.column("__split").slice(0, NUM).equals(first.column("__split"))
    codes = whole.column("__split").to_numpy()
    assert np.array_equal(codes[:NUM], codes[NUM:])


def test_columns_that_hardly_identify_rows_do_not_collapse_the_split():
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.integers(0, 3, 900).astype(str) for name in ("a", "b")})
    table = table.append_column("y", pa.array(rng.integers(0, 2, 900)))
    spec = Spec.model_validate({"name": "t", "data": {"source": "d.csv", "target": "y"}})
    made, preparation = prepare_table(table, spec, Path())
    assert not preparation.equal_rows.identified
    assert not preparation.equal_rows.together
    assert "too few values to tell rows apart" in preparation.equal_rows.text
    assert np.bincount(made.column("__split").to_numpy()) / 900 == pytest.approx([0.7, 0.15, 0.15], abs=0.05)


# ---- folds, features and the verdict take the same units


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """The prepared rows and tensors of a stratified split, each row twice."""
    folder = tmp_path_factory.mktemp("equal")
    (folder / "own.py").write_text(
        "import torch\n"
        "def fit(rows):\n"
        "    return {'mean': rows.assign(n=(rows['y'] == 'p') * 1.0).groupby('word')['n'].mean()}\n"
    )
    spec = spec_of({"by": "stratified"}, features={"fit": "./own.py:fit"})
    made, preparation = prepare_table(rows(), spec, folder)
    write_rows(made, preparation, folder)
    return folder, spec, made, preparation, write_tensors(folder, folder)


def test_search_folds_divide_no_group_and_hold_both_classes(noise):
    folder, spec, _, preparation, tensors = noise
    job = TrainingJob(
        folder=folder / "job", prepared=folder, tensors=tensors, project=folder, model=spec.model, train=spec.train,
        metric="roc_auc", direction="maximize", fold_by="groups",
    )  # fmt: skip
    for index in range(4):
        train, validation = open_examples(job.model_copy(update={"fold": (index, 4)}), preparation)
        keys = [set(side.tensors["numeric"][side.keep].numpy()[:, 0].tolist()) for side in (train, validation)]
        assert not keys[0] & keys[1]
        assert len(keys[1]) > 50
        assert len(set(validation.targets().tolist())) == 2


def test_features_learnt_of_the_target_are_of_other_rows(noise):
    _, _, made, _, _ = noise
    rows_of_training = made.filter(pa.array(made.column("__split").to_numpy() == 0))
    first = {}
    for number, learnt in zip(
        (rows_of_training.column("__row").to_numpy() % NUM).tolist(),
        rows_of_training.column("__fitted:mean").to_pylist(),
        strict=True,
    ):
        assert first.setdefault(number, learnt) == learnt or np.isnan(learnt)
    assert len(first) > 150


def test_the_verdict_resamples_copies_as_one(noise):
    folder, spec, made, preparation, _ = noise
    group = made.column("__row").to_numpy()[made.column("__split").to_numpy() == 2] % NUM
    target = np.arange(len(group)) % 2
    evidence = with_clusters(Evidence("binary", target, target * 0.5), folder, preparation, spec)
    assert len(np.unique(evidence.clusters)) == len(np.unique(group)) == len(group) / 2


@pytest.mark.parametrize(("share", "champion", "passes"), [(0.3, False, False), (0.3, True, True), (0.05, False, True)])
def test_a_first_model_with_many_copies_waits_for_a_person(share, champion, passes):
    target = np.arange(200) % 2
    scores = target * 0.6 + 0.2 * np.random.default_rng(0).random(200)
    evidence = Evidence("binary", target, scores, scores if champion else None, copies=share)
    verdict = judge(evidence, Judge(resamples=100), METRICS["roc_auc"])
    assert verdict.promoted is passes
    assert [gate.name for gate in verdict.failed] == ([] if passes else ["copies"])
    assert replace(evidence, copies=share).copies == verdict.copies


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_who_learns_the_training_rows_by_heart_knows_nothing_of_the_test_rows(by):
    """Trees of a leaf a row did so: an ROC AUC of .90 in pure noise."""
    found = {}
    for rule in ("apart", "together"):
        made, _, _ = prepared(rows(), {"by": by, "equal_rows": rule})
        code, answer = made.column("__split").to_numpy(), made.column("y").to_numpy(zero_copy_only=False)
        points = np.stack([made.column(name).to_numpy() for name in ("a", "b")], axis=1)
        distance = np.abs(points[code == 2][:, None] - points[code == 0]).sum(axis=2)
        found[rule] = float((answer[code == 0][distance.argmin(axis=1)] == answer[code == 2]).mean())
    assert found["apart"] > 0.7
    assert found["together"] < 0.65
