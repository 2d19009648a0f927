"""Ensembles as one ONNX graph."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.data.preparation import Preparation
from models.export.ensemble_graph import MemberPart, ensemble_part
from models.export.export import export
from models.export.trained import num_validation_examples, validation_predictions
from models.export.validation_scores import validation_scores, validation_value
from models.inputs.graph_builder import GraphBuilder
from models.project_spec.blocks import Model
from models.training.ensemble import members_of
from models.training.job import FIRST_FIT, TrainingJob
from models.training.search_space import settings_of
from tests.finished_jobs import METADATA, FinishedJob, run_stretch
from tests.wide import wide

CASES = [
    ("table", "binary", ("trees", "linear", "mlp")),
    wide("table", "multiclass", ("linear", "trees")),
    wide("series", "horizons", ("gru", "mlp")),
]


def joined(finished_job: FinishedJob, folder: Path, kind: str, task: str, nets: tuple[str, ...]) -> TrainingJob:
    """The finished job of an ensemble, whose members have weights 1, 2, ... in proportion."""
    jobs = [finished_job(net, kind, task) for net in nets]
    weights = np.arange(1, len(nets) + 1) / sum(range(1, len(nets) + 1))
    settings = settings_of(weights.tolist(), [{"model.net": net} for net in nets])
    arguments = {"members": settings["model.members"]}
    ensemble = jobs[0].model_copy(update={"folder": folder, "model": Model(net="ensemble", arguments=arguments)})
    for job, member in zip(jobs, members_of(ensemble), strict=True):
        shutil.copytree(job.folder, member.job.folder)
    return ensemble


@pytest.mark.parametrize(("kind", "task", "nets"), CASES)
def test_the_graph_predicts_the_weighted_mean(
    finished_job: FinishedJob, tmp_path: Path, kind: str, task: str, nets: tuple[str, ...]
) -> None:
    job = joined(finished_job, tmp_path / "job", kind, task, nets)
    preparation = Preparation.load(job.prepared)
    made = export(job.as_json(), str(tmp_path), METADATA)
    assert made["parity"] < 1e-4
    assert not made["knows_validation"], "no member is refitted"
    graph = onnx.load(tmp_path / "model.onnx").graph
    names = [name for node in graph.node for name in node.output if name]
    assert len(names) == len(set(names))
    assert all(any(name.startswith(f"core/{net}/") for name in names) for net in nets)
    at = np.arange(num_validation_examples(job.tensors))
    whole = validation_predictions(job, preparation, at)
    parts = [validation_predictions(member.job, preparation, at) for member in members_of(job)]
    mean = sum(member.weight * part for member, part in zip(members_of(job), parts, strict=True))
    np.testing.assert_allclose(whole, mean, rtol=1e-9)


def test_members_of_one_kind_keep_their_names_apart() -> None:
    def part(name: str, weight: float, factor: float) -> MemberPart:
        builder = GraphBuilder("core/")
        scaled = builder.node("Mul", ["core/numeric", builder.constant("factor", np.array(factor, np.float32))], "out")
        return MemberPart(builder, scaled, name, weight)

    whole, output = ensemble_part([part("a", 0.25, 2.0), part("b", 0.75, 10.0)], "regression")
    names = [name for node in whole.nodes for name in node.output]
    assert len(names) == len(set(names))
    (made,) = run_stretch(whole, {"core/numeric": np.array([[1.0], [3.0]], np.float32)}, [output])
    np.testing.assert_allclose(made, [[8.0], [24.0]])


def test_graphs_inside_a_node_see_the_new_names() -> None:
    def part(name: str, weight: float) -> MemberPart:
        builder = GraphBuilder("core/")
        doubled = builder.node("Add", ["core/numeric", "core/numeric"], "doubled")
        yes = builder.constant("yes", np.array([True]))
        branches = [
            helper.make_graph(
                [helper.make_node("Identity", [read], [f"core/{side}"])],
                side,
                [],
                [helper.make_tensor_value_info(f"core/{side}", TensorProto.FLOAT, None)],
            )
            for side, read in (("then", doubled), ("else", "core/numeric"))
        ]
        made = builder.node("If", [yes], "chosen", then_branch=branches[0], else_branch=branches[1])
        return MemberPart(builder, made, name, weight)

    whole, output = ensemble_part([part("a", 0.5), part("b", 0.5)], "regression")
    (made,) = run_stretch(whole, {"core/numeric": np.array([[1.0], [3.0]], np.float32)}, [output])
    np.testing.assert_allclose(made, [[2.0], [6.0]])


def test_families_are_joined_where_that_is_better_and_only_if_asked(finished_job: FinishedJob) -> None:
    jobs = {net: finished_job(net, "table", "binary").as_json() for net in ("trees", "linear", "mlp")}
    alone = validation_scores(jobs)
    assert (alone["weights"], alone["scores"]) == ({}, validation_scores(jobs, is_joined=True)["scores"])
    made = validation_scores({"trees": jobs["trees"], "again": jobs["trees"]}, is_joined=True)
    assert made["weights"] == {}, "a model and its twin are no ensemble"
    numbers = finished_job("trees", "table", "regression").as_json()
    assert (alone["joined_by"], validation_scores({"trees": numbers})["joined_by"]) == ("log_loss", "mae")
    ranks: dict[str, Any] = validation_scores(jobs, is_joined=True)
    assert set(ranks["weights"]) <= set(jobs)
    assert json.dumps(ranks["weights"])


def test_the_figures_of_a_refitted_ensemble_are_of_its_first_fits(finished_job: FinishedJob, tmp_path: Path) -> None:
    job = joined(finished_job, tmp_path / "job", "table", "regression", ("mlp", "trees"))
    value = validation_value(job.as_json())
    refitted = job.model_copy(update={"train": job.train.model_copy(update={"refit": True})})
    trees = next(member.job.folder for member in members_of(job) if member.name == "trees")
    (trees / FIRST_FIT).mkdir()
    shutil.move(trees / "trees.txt", trees / FIRST_FIT)
    (trees / "trees.txt").write_text("not read")
    assert validation_value(refitted.model_dump(mode="json")) == value
