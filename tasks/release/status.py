"""Release status for a person: traffic shares, the health of each version, the shadow's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from models.data.preparation import PREPARATION_FILE, ClassHead, Preparation
from models.errors import LooplineError
from models.feedback.label_text import label_values
from models.judge.verdict import Estimate
from models.kinds.task import PerTask
from models.metrics.classification import ClassScores, Decision
from models.metrics.metrics import Array, metric_of
from models.monitoring.report import MonitoringReport
from models.project_spec.blocks import Spec
from models.serving.registry import ChampionMove
from models.serving.releases import Release, ReleasePlan
from models.serving.shadow_comparison import DecisionThresholds, ShadowComparison, compare
from tasks.host import database
from tasks.host.workspace import Project, Workspace
from tasks.mlflow.model_cache import numbered_copy
from tasks.mlflow.release_plans import plan_of
from tasks.release.deployment import DeploymentCounts, counted, deployed, live_releases
from tasks.release.shared_state import SharedReleaseState, VersionOutcomes
from tasks.state import findings, shadows
from tasks.state.champion_moves import champion_of, moves_of
from tasks.state.predictions import label_store, latest_labels


class VersionStatus(BaseModel):
    """A version in a release. `role`: stable, canary, shadow, previous, refused or returned."""

    version: str
    role: str
    share: float = Field(0.0, description="Of the requests that it answers, 0 to 1.")
    tally: VersionOutcomes = Field(
        default_factory=VersionOutcomes,
        description="On all servers since the release began; without a shared state database: by live workers.",
    )
    realised: Estimate | None = Field(None, description="The goal's metric on labelled predictions, last whole window.")
    state: str = Field("", description="What monitoring says of that window.")
    why: str = Field("", description="Of a refusal or a return.")


class ReleaseStatus(BaseModel):
    """The release status of a project."""

    project: str
    champion: str | None = Field(None, description="The registry's.")
    plan: ReleasePlan = ReleasePlan()
    workers: int = Field(0, description="That answer on this machine.")
    servers: int = Field(0, description="Live ones of the deployment, with a shared state database.")
    release: Release | None = Field(None, description="What the servers answer with, or did last on this machine.")
    versions: list[VersionStatus] = Field(default_factory=list)
    behind: list[str] = Field(default_factory=list, description="Where servers do not answer as the newest move says.")
    comparison: ShadowComparison | None = None
    journal: list[ChampionMove] = Field(default_factory=list, description="Newest first.")


def release_status(project: Project, spec: Spec) -> ReleaseStatus:
    """Return the status of a project's release.

    Raises:
        StoreError: The registry is unavailable.
    """
    champion = champion_of(project.workspace.state, spec.name)
    state = project.state(spec.name)
    release_state = SharedReleaseState(state / "serving")
    release, reports = release_state.release(), release_state.reports()
    tallies: dict[str, VersionOutcomes] = {}
    for report in reports:
        for version, tally in report.tallies.items():
            tallies[version] = tallies.get(version, VersionOutcomes()).plus(tally)
    shared = DeploymentCounts()
    if database.is_shared():
        elsewhere = None if reports else deployed(state)  # no server runs on this machine
        if elsewhere:
            release, shared = elsewhere.release, elsewhere.counts
        elif release:
            shared = counted(state, release)
    shadow = release.shadow if release else None
    return ReleaseStatus(
        project=spec.name,
        champion=champion.number if champion else None,
        plan=plan_of(champion),
        workers=len(reports),
        release=release,
        servers=shared.num_servers,
        versions=_versions(release, shared.outcomes or tallies, findings.load(state)) if release else [],
        behind=behind(champion.number if champion else None, _answering(state, release, len(reports))),
        comparison=compared(project, spec, shadow) if shadow else None,
        journal=moves_of(project.workspace.state, spec.name),
    )


def behind(champion: str | None, releases: Sequence[Release]) -> list[str]:
    """Return in words where servers do not answer as the newest move says.

    Args:
        champion: The version that it names; None: none.
        releases: What each server answers with.
    """
    texts = [release.away for release in releases if release.away]
    for release in releases:
        canary = release.canary.version if release.canary else None
        if champion not in (None, release.stable, canary, *release.refused, *release.returned) and not release.away:
            texts.append(f"a server answers with version {release.stable} and not yet with version {champion}")
    return list(dict.fromkeys(texts))


def _answering(state: Path, release: Release | None, num_workers: int) -> list[Release]:
    """Return the releases of the servers that run: of all machines, or without a shared database of this one."""
    if database.is_shared():
        return live_releases(state)
    return [release] if release and num_workers else []


def compared(project: Project, spec: Spec, version: str) -> ShadowComparison:
    """Compare a shadow's predictions with the served ones, on the last predictions that it processed."""
    state = project.state(spec.name)
    folder = project.workspace.cache / "models" / spec.name / version
    preparation = Preparation.load(folder)
    outputs = preparation.target.outputs
    metric = metric_of(spec.goal, preparation, project.folder)
    ids, versions, answered, shadow = shadows.answers(state, version)
    rule = ROW_HEADS[preparation.task]
    heads = {name: rule.head(project.workspace, spec.name, name, preparation) for name in {*versions}}
    of_rows = [heads[name] for name in versions]
    answered = rule.answered(answered, of_rows)
    chosen = rule.decision([row.head for row in of_rows], preparation)
    thresholds = DecisionThresholds(chosen, preparation.class_head.decision)
    label = np.full((len(ids), len(outputs)) if outputs else len(ids), np.nan)
    if preparation.kind == "text":
        label = np.zeros(len(ids))  # no label is needed: the next character is in the text
    elif ids and (state / "labels").is_dir():
        import pyarrow as pa

        labels = latest_labels(label_store(state), pa.chunked_array([ids], pa.string()))
        label = label_values(labels.column("label"), preparation.target)
    comparison = compare(version, metric, answered, shadow, label, thresholds)
    return comparison.model_copy(update={"note": shadows.note_of(state, version)})


class _VersionHead(NamedTuple):
    """The class head of a version for the shadow's positive class, and whether the version's own is the other one."""

    head: ClassHead = ClassHead()
    is_reversed: bool = False


def _class_head(workspace: Workspace, model: str, version: str | None, shadow: Preparation) -> _VersionHead:
    """Return how a version that answered decides; as none does if neither cache nor registry has it any more."""
    if version is None:
        return _VersionHead()
    try:
        folder = numbered_copy(workspace, model, version, [PREPARATION_FILE]).folder
    except LooplineError:
        return _VersionHead()
    theirs = Preparation.load(folder)
    if not theirs.target.is_reversed(shadow.target):
        return _VersionHead(theirs.class_head)
    return _VersionHead(theirs.class_head.model_copy(update={"threshold": 1 - theirs.class_head.threshold}), True)


def _no_head(workspace: Workspace, model: str, version: str | None, shadow: Preparation) -> _VersionHead:
    del workspace, model, version, shadow
    return _VersionHead()


def _of_positive_class(answered: Array, heads: Sequence[_VersionHead]) -> Array:
    """Return probabilities of the shadow's positive class (row,)."""
    return np.where(np.array([head.is_reversed for head in heads], dtype=bool), 1 - answered, answered)


def _as_answered(answered: Array, heads: Sequence[_VersionHead]) -> Array:
    del heads
    return answered


def _thresholds(heads: Sequence[ClassHead], preparation: Preparation) -> Decision:
    del preparation
    return np.array([head.threshold for head in heads])


def _class_scores(heads: Sequence[ClassHead], preparation: Preparation) -> Decision:
    ones, zeros = ([value] * len(preparation.target.names) for value in (1.0, 0.0))
    weights = np.array([head.score_weights or ones for head in heads])
    return ClassScores(weights, np.array([head.score_offsets or zeros for head in heads]))


def _label_thresholds(heads: Sequence[ClassHead], preparation: Preparation) -> Decision:
    usual = [0.5] * len(preparation.outputs)
    return np.array([head.thresholds or usual for head in heads])


class RowHeads(NamedTuple):
    """How rows that several versions answered are compared.

    Attributes:
        head: Returns the class head of a version that answered.
        answered: Returns what was answered, from the answers and the heads of the rows.
        decision: Returns the decision of each row by the head of the version that answered it.
    """

    head: Callable[[Workspace, str, str | None, Preparation], _VersionHead]
    answered: Callable[[Array, Sequence[_VersionHead]], Array]
    decision: Callable[[Sequence[ClassHead], Preparation], Decision]


_NUMBERS = RowHeads(_no_head, _as_answered, _thresholds)
ROW_HEADS: PerTask[RowHeads] = {
    "binary": RowHeads(_class_head, _of_positive_class, _thresholds),
    "multiclass": RowHeads(_class_head, _as_answered, _class_scores),
    "multilabel": RowHeads(_class_head, _as_answered, _label_thresholds),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": _NUMBERS,
    "ranking": _NUMBERS,
}


def _versions(
    release: Release, tallies: Mapping[str, VersionOutcomes], report: MonitoringReport | None
) -> list[VersionStatus]:
    canary = release.canary
    roles: list[tuple[str | None, str, float, str]] = [
        (release.stable, "stable", 1 - canary.share if canary else 1.0, ""),
        (canary.version if canary else None, "canary", canary.share if canary else 0.0, ""),
        (release.shadow, "shadow", 0.0, ""),
        (release.previous, "previous", 0.0, ""),
        *((version, "refused", 0.0, reason) for version, reason in release.refused.items()),
        *((version, "returned", 0.0, reason) for version, reason in release.returned.items()),
    ]
    versions: list[VersionStatus] = []
    for version, role, share, reason in roles:
        if version is not None and not (role == "previous" and version in [listed.version for listed in versions]):
            windows = (
                [window for window in report.windows if window.version == version and window.whole] if report else []
            )
            last = windows[-1] if windows else None
            versions.append(
                VersionStatus(
                    version=version,
                    role=role,
                    share=share,
                    tally=tallies.get(version, VersionOutcomes()),
                    realised=last.realised if last else None,
                    state=last.state if last else "",
                    why=reason,
                )
            )
    return versions
