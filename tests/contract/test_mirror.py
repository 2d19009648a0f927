"""Unit tests mirror the code: `models/a/b.py` is tested by `tests/unit/models/a/test_b.py`."""

from pathlib import Path

import pytest

# Module -> where it is tested instead. An entry whose mirror exists fails: take it off the list.
ELSEWHERE: dict[str, str] = {
    "models/training/convex/fit.py": "tests/unit/models/training/test_linear.py: the fit of linear models",
    "models/estimators/agreement.py": "tests/unit/models/estimators/test_probe.py: what the probe compares by",
    "models/export/feature_nodes.py": "tests/unit/models/export/test_trees.py: what trees read",
    "models/inputs/tree_ensemble.py": "tests/unit/models/export/test_trees.py: the trees of LightGBM",
    "models/estimators/one_form.py": "tests/unit/models/estimators/test_converters.py: what converters return",
    "models/project_spec/reserved_columns.py": "tests/unit/models/data/test_prepare.py: names, which it writes",
    "models/feedback/columns.py": "tests/unit/models/feedback/test_feedback.py: names, which it reads and writes",
    "models/project_spec/judge.py": "tests/unit/models/project_spec/test_blocks.py: a block of the spec there",
    "tasks/dashboard/__main__.py": "tests/integration/test_page.py: a real server",
    "models/inference/box.py": "tests/unit/models/inference/test_occlusion.py: the patches that it returns",
    "models/judge/column_importance.py": "tests/unit/models/judge/test_importance.py: the record that it returns",
    "models/judge/worst_rows.py": "tests/unit/models/judge/test_worst_examples.py: the record that it returns",
    "tasks/dashboard/actions.py": "tests/integration/test_page.py: a real server",
    "tasks/dashboard/drafting.py": "tests/unit/tasks/dashboard/test_new_project.py: what the pages ask of it",
    "tasks/dashboard/repository.py": "tests/unit/tasks/dashboard/test_new_project.py: what the pages write",
    "tasks/dashboard/spec_edit.py": "tests/unit/tasks/dashboard/test_new_project.py: the same browser",
    "tasks/dashboard/uploads.py": "tests/unit/tasks/dashboard/test_new_project.py: the same browser",
    "models/report/spec_pages/page.py": "tests/unit/tasks/dashboard/test_new_project.py: the pages in use",
    "tasks/dashboard/api.py": "tests/integration/test_page.py: a real server",
    "tasks/dashboard/app.py": "tests/integration/test_page.py: a real server",
    "tasks/dashboard/buttons.py": "tests/integration/test_page.py: a real server",
    "tasks/dashboard/data.py": "tests/integration/test_data_page.py: a real server and a browser",
    "tasks/dashboard/data_versions.py": "tests/integration/test_data_page.py: a real server and a browser",
    "models/validation/data_profile.py": "tests/unit/models/validation/test_profiling.py: what that one counts",
    "tasks/steps/profile.py": "tests/integration/test_data_page.py: needs the steps before it",
    "tasks/dashboard/playground.py": "tests/integration/test_playground_page.py: a real server and a browser",
    "tasks/dashboard/playground_process.py": "tests/integration/test_playground_page.py: a real server and a browser",
    "models/serving/playground_form.py": "tests/unit/models/serving/test_playground.py: what that one fills",
    "tasks/dashboard/releases.py": "tests/integration/test_page.py: a real server",
    "tasks/dashboard/versions.py": "tests/integration/test_page.py: a real server",
    "tasks/state/delta/delta_files.py": "tests/unit/tasks/state/delta/test_delta_log.py: the files of that log",
    "tasks/gc/candidates.py": "tests/unit/tasks/gc/test_collect.py: what that one lists and removes",
    "tasks/gc/half_written.py": "tests/unit/tasks/operations/test_reap.py: what the reaper removes at once",
    "tasks/gc/mlflow_rows.py": "tests/integration/test_gc.py: needs a registry",
    "tasks/tools/dvc_remote.py": "tests/integration/test_dvc.py: needs DVC",
    "tasks/mlflow/garbage.py": "tests/integration/test_gc.py: needs a registry",
    "tasks/operations/collect_garbage.py": "tests/integration/test_gc.py: needs a registry",
    "tasks/host/object_store.py": "tests/integration/test_object_store.py: needs an S3 server",
    "models/identity/equal_share.py": "tests/unit/models/identity/test_equal_rows.py: what that one counts",
    "tasks/host/reconnecting.py": "tests/integration/test_reconnecting.py: needs Postgres",
    "tasks/host/database_copy.py": "tests/integration/test_postgres.py: needs Postgres",
    "tasks/tools/study_tables.py": "tests/fault/test_migrate.py: needs Optuna and Postgres",
    "tasks/operations/after_restore.py": "tests/integration/test_after_restore.py: needs a registry",
    "tasks/mlflow/registry.py": "tests/integration/test_registry.py: needs a registry",
    "tasks/mlflow/stored_versions.py": "tests/integration/test_registry.py: needs a registry",
    "tasks/host/tables.py": "tests/unit/tasks/host/test_database.py: the migrations make these tables",
    "tasks/host/migrations/env.py": "tests/unit/tasks/host/test_database.py: makes a database",
    "tasks/host/migrations/versions/0001_create_the_tables.py": "tests/unit/tasks/host/test_database.py: the same",
    "tasks/host/migrations/versions/0002_create_the_counts_of_servers.py": "tests/unit/tasks/host/test_database.py",
    "tasks/host/migrations/versions/0003_add_the_trials_of_releases.py": "tests/unit/tasks/host/test_database.py",
    "tasks/host/migrations/versions/0005_add_the_reasons_of_failed_loops.py": "tests/unit/tasks/host/test_database.py",
    "tasks/host/migrations/versions/0004_create_the_live_servers.py": "tests/unit/tasks/host/test_database.py",
    "tasks/host/migrations/versions/0006_create_the_moves_of_champions.py": "tests/unit/tasks/host/test_database.py",
    "tasks/tools/optuna_study.py": "tests/integration/test_optuna_study.py: needs Optuna and its storage",
    "tasks/steps/card.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/card_decision.py": "tests/rules/test_positive_class.py: needs a trained model",
    "tasks/steps/export.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/importances.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/judge.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/promote.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/register.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "models/serving/predict_request.py": "tests/unit/tasks/serve/test_answering.py: what is asked there",
    "tasks/serve/__main__.py": "tests/integration/test_server.py: a real server",
    "tasks/serve/app.py": "tests/integration/test_server.py: a real server",
    "tasks/steps/rivals.py": "tests/rules/test_margin.py: needs a registry",
    "tasks/steps/search.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/serve/compactor.py": "tests/integration/test_served_log.py: a real server and its compactor",
    "tasks/serve/grpc/server.py": "tests/integration/test_open_inference.py: a real server and a real client",
    "tasks/serve/open_inference.py": "tests/integration/test_open_inference.py: a real server and a real client",
    "tasks/serve/scoring.py": "tests/integration/test_scoring.py: a real server",
    "tasks/steps/train.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/steps/version.py": "tests/integration/test_loop.py: needs the steps before it and the real tools",
    "tasks/loop/carry_moves.py": "tests/integration/test_carrier.py: needs a registry",
    "tasks/loop/carry_runs.py": "tests/integration/test_delivery.py: needs a tracking store",
    "tasks/mlflow/carrier.py": "tests/integration/test_carrier.py: needs a registry",
    "tasks/mlflow/release_plans.py": "tests/integration/test_releases.py: needs a registry",
    "tasks/mlflow/named_moves.py": "tests/integration/test_what_servers_follow.py: a real MLflow server",
    "tasks/release/registry_jobs.py": "tests/integration/test_releases.py: a process of its own",
    "tasks/serve/webhook.py": "tests/integration/test_releases.py: a real server",
    "tasks/release/smoke_test.py": "tests/integration/test_releases.py: a process of its own",
    "tasks/loop/champion.py": "tests/integration/test_registry.py: needs a registry",
    "tasks/mlflow/onnx_model.py": "tests/integration/test_loop.py: needs an exported model",
    "models/sources/source.py": "tests/unit/models/sources/test_schemes.py: the terms of that table",
    "models/inputs/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/numeric/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/gap/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/score/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/target_mean/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/categorical/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/datetime/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/fitted/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/image/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/text/record.py": "tests/unit/models/inputs/test_records.py: the records of all kinds",
    "models/inputs/raw_rows.py": "tests/unit/models/inputs/test_rows.py: the terms of that table",
    "models/inputs/text/rows.py": "tests/unit/models/ngrams/test_columns.py: with the models of n-grams",
    "models/inputs/fitted/rows.py": "tests/unit/models/fitted_features/test_fit.py: with the user's functions",
    "models/inputs/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/numeric/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/categorical/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/fitted/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/image/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/text/nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "models/inputs/datetime/nodes.py": "tests/unit/models/inputs/datetime/test_rows.py: the same bits",
    "models/inputs/gap/nodes.py": "tests/unit/models/inputs/gap/test_rows.py: the same bits",
    "models/inputs/score/nodes.py": "tests/unit/models/inputs/score/test_rows.py: the same bits",
    "models/inputs/target_mean/nodes.py": "tests/unit/models/inputs/target_mean/test_rows.py: the same bits",
    "models/inputs/kind_nodes.py": "tests/unit/models/export/test_preparation_graph.py: in a graph",
    "tasks/ranks/rank_pool.py": "tests/integration/test_rank_pool.py: needs processes",
}


def mirror(path: Path) -> Path:
    return Path("tests/unit") / path.parent / f"test_{path.name}"


def floors(modules: list[Path]) -> list[Path]:
    return [path for path in modules if path.parts[0] in ("models", "tasks") and path.name != "__init__.py"]


def test_every_module_has_its_unit_tests(root: Path, modules: list[Path]) -> None:
    missing = [str(path) for path in floors(modules) if not (root / mirror(path)).is_file()]
    assert sorted(set(missing) - set(ELSEWHERE)) == []
    assert sorted(set(ELSEWHERE) - set(missing)) == [], "tested by its mirror now: take it off the list"


def test_what_is_tested_elsewhere_names_a_file_that_is_there(root: Path) -> None:
    for module, reason in ELSEWHERE.items():
        named = reason.split(":")[0]
        assert (root / named).exists(), f"{module}: {named} is not there"


def test_every_unit_test_mirrors_a_module(root: Path) -> None:
    strangers = []
    for path in sorted((root / "tests" / "unit").rglob("test_*.py")):
        inside = path.relative_to(root / "tests" / "unit")
        module = root / inside.parent / inside.name.removeprefix("test_")
        if not module.is_file():
            strangers.append(str(path.relative_to(root)))
    assert strangers == []


@pytest.mark.parametrize("folder", ["unit", "integration", "contract", "e2e", "fault"])
def test_no_test_file_is_empty(root: Path, folder: str) -> None:
    for path in (root / "tests" / folder).rglob("test_*.py"):
        assert "def test_" in path.read_text(), path
