"""The page of a project's release, and its acts: canary, shadow, end and return, as `loopline release` does them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from models.errors import LooplineError
from models.report.facts import ProjectFacts
from models.report.release_page import ReleasedVersion, ReleaseFacts, render_live, render_releases
from models.serving.releases import ReleasePlan
from tasks.dashboard import api
from tasks.dashboard.acting import ActionRequest, ActionResult, act
from tasks.dashboard.actions import Action, Confirmation, reason_of, text_of
from tasks.dashboard.loops import changes, stream
from tasks.dashboard.session import logout_token
from tasks.host.workspace import Project, Workspace
from tasks.operations.overview import overview
from tasks.state.versions import versions_of

PAGE = "/releases"
MOST_CHOICES = 50
MOST_MOVES = 30


def _ask_begin(project: ProjectFacts, query: Mapping[str, str], *, action: str) -> Confirmation | None:
    champion, version = project.champion, query.get("version", "")
    if champion is None:
        return None
    if not version.isdecimal():
        raise HTTPException(422, f"version: got {version[:40]!r}, expected the number of a version, as on its page.")
    if version == champion.number:
        raise HTTPException(422, f"Version {version} is the champion and answers already: choose another.")
    shown = {"version": version, "move": _move(project)}
    plan = ReleasePlan.of_tags(champion.tags)
    if action == "shadow":
        lines = ["It predicts the logged requests in the background; no caller gets its answers."]
        use, before = f"as a shadow of version {champion.number}", plan.shadow
    else:
        share = _share(query.get("percent", ""))
        shown["percent"] = f"{100 * share:g}"
        lines = [f"Version {champion.number} answers the rest. The trial ends with the champion, or when it is ended."]
        use, before = f"for {100 * share:g} % of the requests", plan.canary.version if plan.canary else None
    if before:
        lines.append(f"Version {before} is the {action} now: version {version} takes its place.")
    question = f"Try version {version} of {project.name} {use}?"
    return Confirmation(question, lines, f"Begin the {action}", shown)


def _share(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0 < percent < 100:
        raise HTTPException(422, f"share: got {text[:40]!r}, expected a number of percent above 0 and below 100.")
    return percent / 100


def _begin(workspace: Workspace, project: ProjectFacts, form: FormData, *, action: str) -> ActionResult:
    request = ActionRequest.model_validate(
        {
            "action": action,
            "model": project.name,
            "version": text_of(form, "version"),
            "share": _share(text_of(form, "percent")) if action == "canary" else None,
            "move": _shown_move(form),
            "reason": reason_of(form),
        }
    )
    return act(workspace, request)


def _ask_end(project: ProjectFacts, _: Mapping[str, str], *, action: str) -> Confirmation | None:
    plan = ReleasePlan.of_tags(project.champion.tags) if project.champion else ReleasePlan()
    trials = [f"the canary, version {plan.canary.version}"] if plan.canary else []
    trials += [f"the shadow, version {plan.shadow}"] if plan.shadow else []
    if not trials or (action == "return" and not plan.canary):
        return None
    reason = "because it does badly" if action == "return" else "without a judgement of it"
    champion = project.champion.number if project.champion else ""
    return Confirmation(
        f"End {' and '.join(trials)} of {project.name}?",
        [f"It ends {reason}: the journal says so. Version {champion} then answers all requests."],
        "Return it" if action == "return" else "End it",
        {"move": _move(project)},
    )


def _end(workspace: Workspace, project: ProjectFacts, form: FormData, *, action: str) -> ActionResult:
    values = {"action": action, "model": project.name, "move": _shown_move(form), "reason": reason_of(form)}
    return act(workspace, ActionRequest.model_validate(values))


def _move(project: ProjectFacts) -> str:
    """Return the number of the newest move, by which a later act is refused if somebody was quicker."""
    return str(project.moves[0].number if project.moves else 0)


def _shown_move(form: FormData) -> int:
    text = text_of(form, "move")
    return int(text) if text.isdecimal() else 0


BUTTONS = {
    **{
        action: Action(partial(_ask_begin, action=action), partial(_begin, action=action), True, PAGE)
        for action in ("canary", "shadow")
    },
    **{
        action: Action(partial(_ask_end, action=action), partial(_end, action=action), True, PAGE)
        for action in ("end", "return")
    },
}


def page(request: Request) -> Response:
    """Return the page of a project's release: what answers and how it does, what may be tried, and the journal."""
    workspace: Workspace = request.app.state.workspace
    project = api.project_of(request)
    seen = overview(workspace, [project])
    stored = versions_of(workspace.state, seen.projects[0].name)[-MOST_CHOICES:]
    facts = _facts(project, seen.projects[0], [version.number for version in reversed(stored)], seen.at)
    return HTMLResponse(render_releases(facts, logout_token(request)))


async def events(request: Request) -> Response:
    """Return the changes of a release as server-sent events, until the page is closed."""
    project = await run_in_threadpool(api.project_of, request)
    return stream(changes(request, partial(_newest_part, request.app.state.workspace, project)))


def _newest_part(workspace: Workspace, project: Project) -> tuple[str, bool]:
    seen = overview(workspace, [project])
    return render_live(_facts(project, seen.projects[0], [], seen.at)), False


def _facts(project: Project, facts: ProjectFacts, choices: list[str], now: float) -> ReleaseFacts:
    """Return the release as plain data; a spec or a store that cannot be read is said on the page."""
    from tasks.release.status import release_status  # numpy: only for this page

    candidates = [number for number in choices if not facts.champion or number != facts.champion.number]
    try:
        status = release_status(project, project.spec())
    except LooplineError as error:
        return ReleaseFacts(facts, candidates, now, journal=facts.moves, trouble=str(error))
    versions = [
        ReleasedVersion(
            version.version,
            version.role,
            version.share,
            **version.tally.model_dump(include={"answers", "failed", "slow"}),
            realised=version.realised,
            state=version.state,
            reason=version.why,
        )
        for version in status.versions
    ]
    return ReleaseFacts(
        facts,
        candidates,
        now,
        versions,
        status.workers,
        status.servers,
        status.behind,
        status.comparison,
        status.journal[:MOST_MOVES],
    )


ROUTES = [
    Route("/projects/{name}/releases", page),
    Route("/projects/{name}/releases/events", events),
]
