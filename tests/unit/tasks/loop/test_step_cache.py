"""The step cache says what is done for a spec, and every change that matters is seen and named."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from models.errors import StoreError, UsageError
from models.pipeline import keys
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord, digest_of
from models.pipeline.steps import BY_NAME, STEPS, PlannedStep
from models.project_spec.own_reads import Reads, file_name, save, stamp_of
from models.project_spec.reader import read_spec
from models.serving.registry import RegisteredVersion
from tasks.host import database
from tasks.host.workspace import Project
from tasks.loop.step_cache import FRESH, ORIGIN, REFERENCES, StepCache
from tasks.mlflow import registry_reader
from tasks.ranks.places import checked_spec
from tasks.state.feedback import FeedbackSummary
from tasks.tools import dvc_view
from tests.conftest import MakeProject
from tests.crowned import crown

LEFT = {"version": {"raw": "1.dir", "prepared": "2.dir"}, "register": {"version": "1", "key": "k"}}
"""What lies in the stores of other tools, by the records."""


@pytest.fixture
def project(make_project: MakeProject, code_memory: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Its dataset is in dvc.lock, its version in the registry."""
    project = make_project("tiny")
    monkeypatch.setattr(dvc_view, "hashes", lambda _: LEFT["version"])
    crown(monkeypatch, None)
    (project.workspace.cache / "code.json").write_text(code_memory)
    return project


def step_cache_of(project: Project, *overrides: str) -> StepCache:
    return StepCache(project, read_spec(project.spec_path, overrides))


def record_all(project: Project, *overrides: str, validated: Path | None = None) -> None:
    """Records as a loop leaves them, with a real output file for ingest."""
    step_cache = step_cache_of(project, *overrides)
    done: dict[str, StepRecord] = {}
    project.raw.parent.mkdir(parents=True, exist_ok=True)
    project.raw.write_text("raw")
    for number, step in enumerate(STEPS):
        parts = step_cache.parts(step, done)
        path = {"ingest": project.raw, "validate-prepared": validated}.get(step.name)
        outputs = {step_cache.records.name(path): step_cache.hashes.of(path)} if path else {}
        done[step.name] = StepRecord(
            step=step.name,
            key=key_of(parts),
            parts=parts,
            outputs=outputs,
            digest=digest_of(outputs) if outputs else f"{step.name} {key_of(parts)}",
            result={"weights_sha256": "w" * 64, "decision": "promote", **LEFT.get(step.name, {})},
            loop_id="tiny-1",
            finished=float(number),
        )
        step_cache.records.save(done[step.name])


def planned(project: Project, *overrides: str) -> dict[str, PlannedStep]:
    return {item.step: item for item in step_cache_of(project, *overrides).plan()}


def first_owed(project: Project, *overrides: str) -> tuple[str, list[str]]:
    for item in planned(project, *overrides).values():
        if item.state == "run":
            return item.step, item.reasons
    return "", []


def test_a_file_in_a_subfolder_of_a_step_is_named_by_its_path(project: Project) -> None:
    """Both fits of a refitted model leave weights of the same name."""
    step_cache = step_cache_of(project)
    work, done = step_cache.work("train", "k"), {}
    for step, paths in {
        "prepare": [project.prepared / "rows.parquet"],
        "train": [work / "trees.txt", work / "first-fit" / "trees.txt"],
    }.items():
        outputs = {step_cache.records.name(path): "d" for path in paths}
        done[step] = StepRecord(
            step=step, key="k", parts={}, outputs=outputs, digest="d", result={}, loop_id="l", finished=0.0
        )
    inputs = step_cache.inputs(BY_NAME["export"], done, {})
    assert inputs["train"].file("trees.txt") == work / "trees.txt"
    assert inputs["train"].file("first-fit/trees.txt") == work / "first-fit" / "trees.txt"
    assert inputs["prepare"].file("rows.parquet") == project.prepared / "rows.parquet"


def test_a_new_project_owes_everything(project: Project) -> None:
    assert first_owed(project) == ("ingest", ["never run"])


def test_a_recorded_loop_owes_nothing_and_another_process_agrees(project: Project) -> None:
    record_all(project)
    assert all(item.state == "done" for item in planned(project).values())


@pytest.mark.parametrize(
    ("override", "step", "reason"),
    [
        ("train.lr=0.5", "search", "train.lr: 0.001 -> 0.5"),
        ("data.split.seed=3", "validate-raw", "data.split.seed: 0 -> 3"),
        ("goal.good_enough=0.5", "judge", "goal.good_enough: null -> 0.5"),
        ("judge.margin=0.1", "judge", "judge.margin: null -> 0.1"),
        ("train.refit=false", "train", "train.refit: true -> false"),
        ("train.max_restarts=9", "", ""),
        ("search.workers=2", "", ""),
        ("monitor.alpha=0.5", "", ""),
        ("retrain.schedule=0 3 * * *", "", ""),
    ],
)
def test_a_change_of_the_spec_owes_from_where_it_is_read(
    project: Project, override: str, step: str, reason: str
) -> None:
    record_all(project)
    found, reasons = first_owed(project, override)
    assert found == step
    assert not reason or reason in reasons


def test_changed_data_is_owed_by_its_name(project: Project) -> None:
    record_all(project)
    (project.folder / "data.csv").write_text("x,c,y\n1,u,no\n")
    assert first_owed(project) == ("ingest", ["file data.csv: changed"])


def test_a_file_with_a_colon_in_its_name_counts_by_its_content(project: Project) -> None:
    source = project.folder / "2024-05-01T10:30.csv"
    (project.folder / "data.csv").rename(source)
    override = f"data.source={source.name}"
    record_all(project, override)
    source.write_text(source.read_text() + "1,u,yes\n")
    assert first_owed(project, override) == ("ingest", [f"file {source.name}: changed"])


@pytest.mark.parametrize("there", [None, RegisteredVersion(number="1", tags={"loopline.key": "another work"})])
def test_a_version_that_the_registry_does_not_hold_is_owed(
    project: Project, monkeypatch: pytest.MonkeyPatch, there: RegisteredVersion | None
) -> None:
    """It was deleted, or another store is named by now."""
    record_all(project)
    crown(monkeypatch, None, there)
    assert first_owed(project) == ("register", ["the registry has no version 1 of this work"])


def test_a_dataset_that_is_in_no_lock_file_or_not_in_the_remote_is_owed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_all(project)
    (project.workspace.root / ".dvc").mkdir()
    (project.workspace.root / ".dvc" / "config").write_text("[core]\n    remote = shared\n")
    assert first_owed(project) == ("version", ["input DVC's remote: new"])
    (project.workspace.root / ".dvc" / "config").unlink()
    assert first_owed(project) == ("", [])
    monkeypatch.setattr(dvc_view, "hashes", lambda _: {})
    assert first_owed(project) == ("version", ["dvc.lock does not name this data"])


def test_a_source_that_is_gone_is_owed(project: Project) -> None:
    record_all(project)
    (project.folder / "data.csv").unlink()
    assert first_owed(project) == ("ingest", ["file data.csv: gone"])


def test_an_output_edited_behind_our_back_is_owed(project: Project) -> None:
    record_all(project)
    project.raw.write_text("RAW")
    step, reasons = first_owed(project)
    assert (step, reasons[0]) == ("ingest", "output changed: projects/tiny/data/raw/raw.parquet")
    shutil.rmtree(project.data)
    assert first_owed(project)[1][0].startswith("output missing")


def test_a_users_net_and_its_sibling_are_followed(project: Project) -> None:
    (project.folder / "net.py").write_text("import layers\n\n\ndef build():\n    return layers.x\n")
    (project.folder / "layers.py").write_text("x = 1\n")
    record_all(project, "model.net=./net.py:build")
    (project.folder / "layers.py").write_text("x = 2\n")
    assert first_owed(project, "model.net=./net.py:build") == ("search", ["code layers.py: changed"])


def test_a_file_that_an_argument_of_the_net_names_counts_by_its_content(project: Project) -> None:
    (project.folder / "net.py").write_text("def build(weights, stages):\n    return weights\n")
    (project.folder / "pretrained.pth").write_bytes(b"one")
    own = ("model.net=./net.py:build", "model.arguments={weights: pretrained.pth, stages: [1, 2], other: no-file}")
    record_all(project, *own)
    (project.folder / "pretrained.pth").write_bytes(b"two!")
    assert first_owed(project, *own) == ("search", ["file pretrained.pth: changed"])


@pytest.mark.parametrize(
    ("net", "module"),
    [("auto", "mlp"), ("auto", "linear"), ("mlp", "mlp"), ("transformer", "transformer")],
)
def test_a_ready_net_counts_by_its_code(project: Project, net: str, module: str) -> None:
    step = BY_NAME["train"]
    parts = step_cache_of(project, f"model.net={net}").parts(step, done_before(step))
    assert f"code:models/nets/{module}.py" in parts
    assert "code:models/nets/rnn.py" not in parts


def done_before(step: Any) -> dict[str, StepRecord]:
    return {
        name: StepRecord(
            step=name, key="k", parts={}, digest="d", loop_id="l", finished=0.0, result={"weights_sha256": "w"}
        )
        for name in (*step.after, "train")
    }


def test_an_unknown_net_is_told_by_the_plan(project: Project) -> None:
    with pytest.raises(UsageError, match=r"model\.net"):
        step_cache_of(project, "model.net=mpl").parts(BY_NAME["train"], done_before(BY_NAME["train"]))


def test_an_edit_of_code_is_remembered_for_the_next_process(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.folder / "net.py").write_text("x = 1\n")
    override = "model.net=./net.py:x"
    record_all(project, override)
    planned(project, override)
    (project.folder / "net.py").write_text("x = 23\n")
    planned(project, override)
    read = []
    real = keys._fingerprint
    monkeypatch.setattr(keys, "_fingerprint", lambda path: read.append(path) or real(path))
    planned(project, override)
    assert read == []


def test_the_champion_that_the_model_itself_became_owes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_all(project)
    tags = {"loopline.weights_sha256": "w" * 64, "loopline.rival": ""}
    crown(monkeypatch, RegisteredVersion(number="1", tags=tags))
    assert first_owed(project) == ("", [])


def test_another_champion_owes_the_verdict(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    record_all(project)
    tags = {"loopline.weights_sha256": "v" * 64}
    crown(monkeypatch, RegisteredVersion(number="2", tags=tags))
    step, reasons = first_owed(project)
    assert step == "judge"
    assert reasons == ["input champion: changed"]


def test_the_best_champion_so_far_is_a_rival_too_and_stays_that_of_its_own_verdict(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_all(project)
    tags = {"loopline.weights_sha256": "v" * 64, "loopline.best": "1:abc"}
    crown(monkeypatch, RegisteredVersion(number="2", tags=tags))
    assert first_owed(project) == ("judge", ["input best champion so far: new", "input champion: changed"])
    own = {"loopline.weights_sha256": "w" * 64, "loopline.rival": "", "loopline.best": "1:abc"}
    crown(monkeypatch, RegisteredVersion(number="3", tags=own))
    assert first_owed(project) == ("", [])
    judged = {**own, "loopline.judged_best": "1:abc"}
    crown(monkeypatch, RegisteredVersion(number="3", tags=judged))
    assert first_owed(project)[0] == "judge"


def test_data_that_was_validated_is_compared_with_another_champions_data_but_not_with_its_own(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The champion that came of it owes nothing; one of other data does; without the registry nothing is known anew."""
    folder = project.state("tiny") / REFERENCES
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("of this data")
    (folder / "2.json").write_text("of other data")

    def champion(number: str) -> None:
        tags = {"loopline.weights_sha256": "w" * 64, "loopline.rival": ""}
        crown(monkeypatch, RegisteredVersion(number=number, tags=tags))

    def away(*_: object) -> None:
        raise StoreError("away")

    crown(monkeypatch, None)
    step_cache = step_cache_of(project)
    record_all(project, validated=folder / "1.json")
    champion("1")
    assert first_owed(project) == ("", [])
    monkeypatch.setattr(registry_reader, "named", away)
    step, done = BY_NAME["validate-prepared"], done_before(BY_NAME["validate-prepared"])
    with pytest.raises(StoreError, match="registry is away"):
        step_cache.inputs(step, done, step_cache.parts(step, done)).external("reference")
    champion("2")
    assert first_owed(project) == ("validate-prepared", ["input champion's data: changed"])
    parts = step_cache.parts(step, done)
    assert step_cache.inputs(step, done, parts).external("reference") == folder / "2.json"


def test_a_result_counts_for_those_who_read_it_and_files_for_all(project: Project) -> None:
    """Other costs of the same search make another card and no training."""
    step_cache, before = step_cache_of(project), done_before(BY_NAME["card"])
    dearer = {**before, "search": before["search"].model_copy(update={"result": {"costs": {"flops": 3}}})}
    for name, same in (("train", True), ("register", False), ("card", False)):
        assert (step_cache.parts(BY_NAME[name], before) == step_cache.parts(BY_NAME[name], dearer)) is same
    other = {**before, "search": before["search"].model_copy(update={"digest": "another"})}
    assert step_cache.parts(BY_NAME["train"], before) != step_cache.parts(BY_NAME["train"], other)


def test_weights_to_begin_with_are_looked_up_once_for_all_that_else_decides(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def champion(number: str) -> None:
        tags = {"loopline.weights_sha256": number * 64, "loopline.rival": ""}
        crown(monkeypatch, RegisteredVersion(number=number, tags=tags))

    start = "train.start.weights=champion"
    crown(monkeypatch, None)
    assert step_cache_of(project, start).parts(BY_NAME["search"], done_before(BY_NAME["search"]))[ORIGIN] == FRESH
    champion("1")
    record_all(project, start)
    champion("2")
    assert not [item for item in planned(project, start).values() if item.state == "run" and item.step != "judge"]
    assert first_owed(project, start, "train.epochs=3")[0] == "search"
    done = done_before(BY_NAME["search"])
    assert step_cache_of(project, start, "train.epochs=3").parts(BY_NAME["search"], done)[ORIGIN].startswith("2:")


def test_a_file_to_begin_with_counts_by_its_content(project: Project) -> None:
    done = done_before(BY_NAME["search"])
    (project.folder / "old.safetensors").write_text("weights")
    step_cache = step_cache_of(project, "train.start.weights=old.safetensors")
    assert step_cache.parts(BY_NAME["search"], done)[ORIGIN].startswith("file:")
    with pytest.raises(UsageError, match=r"there is no .*new\.safetensors"):
        step_cache_of(project, "train.start.weights=new.safetensors").parts(BY_NAME["search"], done)


def test_planning_writes_no_record(project: Project) -> None:
    planned(project)
    assert not (project.workspace.state / database.FILE).exists()


def test_a_dataset_that_dvcs_cache_has_lost_is_owed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEFT, "version", {"raw": "11.dir", "prepared": "22.dir", "is_cached": True})
    for name in ("11", "22"):
        path = project.workspace.root / ".dvc/cache/files/md5" / name / ".dir"
        path.parent.mkdir(parents=True)
        path.write_text("[]")
    record_all(project)
    assert first_owed(project) == ("", [])
    shutil.rmtree(project.workspace.root / ".dvc" / "cache")
    step, (reason,) = first_owed(project)
    assert (step, reason.endswith("no remote: the data in data/ is committed again")) == ("version", True)


def test_what_own_code_read_counts_until_it_is_as_it_was_again(project: Project) -> None:
    override = "data.features.make=./features.py:make"
    (project.folder / "features.py").write_text("def make(frame): return frame\n")
    scale = project.folder / "scale.json"
    scale.write_text("1")
    record_all(project, override)
    step_cache, prepare = step_cache_of(project, override), BY_NAME["prepare"]
    record = step_cache.records.latest("prepare")
    assert record is not None
    reads = Reads({str(scale): stamp_of(str(scale))}, packages={"yaml"})
    parts = {**record.parts, **step_cache.read_parts(prepare, record.parts, reads)}
    assert set(parts) - set(record.parts) == {"read:scale.json", "package:yaml"}
    step_cache.records.save(record.model_copy(update={"parts": parts}))
    assert first_owed(project, override) == ("", [])
    scale.write_text("2")
    assert first_owed(project, override) == ("prepare", ["read scale.json: changed"])
    assert first_owed(project, override, "data.deduplicate=false") != ("prepare", ["read scale.json: gone"])
    scale.write_text("1")
    assert first_owed(project, override) == ("", [])


def test_an_interrupted_attempt_whose_files_have_changed_is_begun_anew(project: Project) -> None:
    """Its trials and checkpoints are of what it read then."""
    step_cache, step = step_cache_of(project), BY_NAME["search"]
    work, file = step_cache.work("search", key_of({"a": 1})), project.folder / "vocabulary.txt"
    file.write_text("1")
    save(Reads({str(file): stamp_of(str(file))}), work / "trials" / file_name("rank-0"))
    assert step_cache.begun(step, {"a": 1}) == {"a": 1}
    file.write_text("22")
    assert set(step_cache.begun(step, {"a": 1})) == {"a", "read:vocabulary.txt"}


def test_a_folder_that_an_argument_of_the_net_names_and_a_file_in_nested_lists_count(project: Project) -> None:
    (project.folder / "weights").mkdir()
    for name in ("weights/model.bin", "a.bin"):
        (project.folder / name).write_text("one")
    arguments = ("model.net=mlp", "model.arguments.folder=weights", "model.arguments.nested=[[a.bin]]")
    before = step_cache_of(project, *arguments).own_parts(BY_NAME["train"])
    for name in ("weights/model.bin", "a.bin"):
        (project.folder / name).write_text("two")
    after = step_cache_of(project, *arguments).own_parts(BY_NAME["train"])
    assert {part for part in after if before[part] != after[part]} == {"file:weights", "file:a.bin"}


def test_reads_count_where_own_code_runs_and_a_missing_one_is_refused(project: Project) -> None:
    (project.folder / "features.py").write_text("def make(frame): return frame\n")
    settings = ("data.features.make=./features.py:make", "reads=[lookup.db]")
    with pytest.raises(UsageError, match=r"reads: got 'lookup.db', and there is no .*lookup.db: expected a file or"):
        checked_spec(project, settings)
    (project.folder / "lookup.db").write_text("1")
    step_cache = step_cache_of(project, *settings)
    assert [step.name for step in STEPS if "file:lookup.db" in step_cache.own_parts(step)] == ["prepare"]


def test_labelled_predictions_are_joined_anew_when_an_expectation_changes(
    project: Project,
) -> None:
    def part(*overrides: str) -> str:
        step_cache = step_cache_of(project, *overrides)
        step_cache.feedback = FeedbackSummary(rows=3, digest="d")
        return str(step_cache.parts(BY_NAME["ingest"], {})["feedback:labelled predictions"])

    expected = "data.expectations=[{expect: column_values_to_be_between, arguments: {column: x, max_value: %d}}]"
    assert len({part(), part(expected % 5), part(expected % 6)}) == 3
    assert part(expected % 5) == part(expected % 5)


def test_equal_rows_stay_as_they_are_for_a_champion_until_the_spec_says_otherwise(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that begins now has them together, and keeps that when it gets a champion."""

    def rule(*overrides: str) -> str | None:
        step = next(step for step in STEPS if step.name == "prepare")
        done = {"ingest": StepRecord(step="ingest", key="k", parts={}, digest="d", loop_id="l", finished=0.0)}
        return step_cache_of(project, *overrides).parts(step, done).get("input:equal rows")

    champion = RegisteredVersion(number="2", tags={"loopline.weights_sha256": "v" * 64})
    assert rule() == "together"
    crown(monkeypatch, champion)
    assert rule() == "apart"
    assert rule("data.split.equal_rows=together") == "together"
    assert rule("data.split.by=position") is None
    record_all(project)
    crown(monkeypatch, None)
    assert rule() == "apart"
    record_all(project, "data.split.equal_rows=together")
    crown(monkeypatch, champion)
    assert rule() == "together"
