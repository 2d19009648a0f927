"""Actions of the dashboard: each is confirmed on a page of its own, carried out, and its result shown.

The form carries the champion and version that the page showed: if somebody moved the champion meanwhile, the registry's
compare-and-swap refuses the action.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from models.errors import StoreError
from models.report.facts import EARLY, ProjectFacts
from models.report.overview_page import Link, render_confirm, render_message
from tasks.dashboard import releases
from tasks.dashboard.acting import ActionRequest, ActionResult, act, prepare
from tasks.dashboard.actions import Action, Confirmation, reason_of, text_of
from tasks.dashboard.approvals import PERSON, answer, request_retraining, stop_loop
from tasks.dashboard.session import checked_form, form_token, logout_token
from tasks.host.workspace import Workspace
from tasks.operations import overview
from tasks.operations.retrain import note_answer

Query = Mapping[str, str]


def _ask_promote(project: ProjectFacts, _: Query) -> Confirmation | None:
    challenger, champion = project.challenger, project.champion
    if challenger is None:
        return None
    lines = [f"Its verdict: {challenger.verdict.summary}" if challenger.verdict else f"It has {challenger.metric}."]
    lines.append(f"The champion now is version {champion.number}." if champion else "There is no champion now.")
    hidden = {"version": challenger.number, "champion": champion.number if champion else ""}
    return Confirmation(f"Make version {challenger.number} of {project.name} the champion?", lines, "Promote", hidden)


def _promote(workspace: Workspace, project: ProjectFacts, form: FormData) -> ActionResult:
    version, champion = text_of(form, "version"), text_of(form, "champion")
    return act(
        workspace,
        ActionRequest(
            action="promote", model=project.name, version=version, expected=champion or None, reason=reason_of(form)
        ),
    )


def _ask_rollback(project: ProjectFacts, _: Query) -> Confirmation | None:
    if project.previous is None or project.champion is None:
        return None
    now, before = project.champion.number, project.previous
    lines = [f"Version {before} was the champion before version {now}. A later promotion undoes it."]
    return Confirmation(f"Give {project.name} back to version {before}?", lines, "Roll back", {"champion": now})


def _rollback(workspace: Workspace, project: ProjectFacts, form: FormData) -> ActionResult:
    champion = text_of(form, "champion")
    return act(
        workspace,
        ActionRequest(action="rollback", model=project.name, expected=champion or None, reason=reason_of(form)),
    )


def _ask_retrain(project: ProjectFacts, _: Query) -> Confirmation | None:
    lines = ["Its policy decides; a person's request overrides all but a running loop and the budget."]
    lines.append(_what_runs(project))
    if project.windows and project.windows[-1].breaches:
        lines.append("The input data is broken: mend the source first. A model trained now would learn the fault.")
    if project.loop.state == "running":
        lines.append(f"Loop {project.loop.loop_id} runs now: the policy will decide to wait.")
    word = project.training_word
    return Confirmation(f"{word} {project.name}?", lines, word)


def _what_runs(project: ProjectFacts) -> str:
    if project.owed:
        return f"It would begin at {project.owed[0]}."
    if project.registry:
        return "Whether anything has changed is not known: the registry cannot be read."
    return "Nothing has changed since the last loop: it would find nothing to do."


def _retrain(workspace: Workspace, project: ProjectFacts, form: FormData) -> ActionResult:
    signal, is_delivered = request_retraining(workspace, project.name, reason_of(form))
    if is_delivered:
        return ActionResult(
            done=True,
            text=f"Prefect has the request ({signal.id}). The project's page shows the loop as soon as it runs.",
        )
    return ActionResult(
        done=True,
        text=f"The request is stored ({signal.id}). Prefect gets it once its server (`loopline up`) answers.",
    )


def _ask_stop(project: ProjectFacts, _: Query) -> Confirmation | None:
    loop = project.loop
    if loop.state != "running" or loop.loop_id is None:
        return None
    lines = [f"{loop.loop_id} runs{f' at {loop.step}' if loop.step else ''}. It ends within seconds, as by Ctrl-C."]
    lines.append("Finished steps and checkpoints stay: a retry, or `loopline run`, continues it.")
    return Confirmation(f"Stop the loop of {project.name}?", lines, "Stop", {"loop": loop.loop_id})


def _stop(workspace: Workspace, project: ProjectFacts, form: FormData) -> ActionResult:
    loop = project.loop
    if loop.state != "running" or loop.loop_id is None or loop.loop_id != text_of(form, "loop"):
        return ActionResult(done=False, text="That loop has ended meanwhile: nothing was stopped.")
    return stop_loop(workspace, project.name, loop.loop_id, loop.flow_run, reason_of(form))


def _ask_retry(project: ProjectFacts, _: Query) -> Confirmation | None:
    loop = project.loop
    if loop.state not in EARLY or loop.loop_id is None:
        return None
    lines = [f"{loop.loop_id} {loop.state}{f' at {loop.step}' if loop.step else ''}. {_what_runs(project)}"]
    lines.append("Unless the spec has changed, this loop goes on; finished steps are not repeated.")
    return Confirmation(f"Run the loop of {project.name} again?", lines, "Retry", {"loop": loop.loop_id})


def _retry(workspace: Workspace, project: ProjectFacts, form: FormData) -> ActionResult:
    if project.loop.state not in EARLY or project.loop.loop_id != text_of(form, "loop"):
        return ActionResult(done=False, text="Another loop has begun meanwhile: nothing was asked.")
    return _retrain(workspace, project, form)


def _ask_answer(project: ProjectFacts, _: Query, *, approved: bool) -> Confirmation | None:
    waiting = project.waiting
    train, leave = f"{project.training_word} {project.name}, as was asked?", f"Leave {project.name} as it is?"
    question = train if approved else leave
    word = "Approve" if approved else "Refuse"
    lines = [waiting.reason, *([_what_runs(project)] if approved else [])] if waiting else []
    return Confirmation(question, lines, word, {"run": waiting.flow_run}) if waiting else None


def _answer(workspace: Workspace, project: ProjectFacts, form: FormData, *, approved: bool) -> ActionResult:
    if project.waiting is None or project.waiting.flow_run != text_of(form, "run"):
        return ActionResult(done=False, text="That question was answered meanwhile, or waits no longer.")
    comment = text_of(form, "reason")
    result = answer(workspace, project.waiting, approved, comment)
    if result.done:
        with contextlib.suppress(StoreError):  # the run has the answer, whatever this page shows until it goes on
            note_answer(workspace, project.name, project.waiting.flow_run, approved, PERSON, comment)
    return result


BUTTONS = {
    "retrain": Action(_ask_retrain, _retrain),
    "approve": Action(partial(_ask_answer, approved=True), partial(_answer, approved=True)),
    "refuse": Action(partial(_ask_answer, approved=False), partial(_answer, approved=False)),
    "stop": Action(_ask_stop, _stop),
    "retry": Action(_ask_retry, _retry),
    "promote": Action(_ask_promote, _promote, is_prepared=True),
    "rollback": Action(_ask_rollback, _rollback, is_prepared=True),
    **releases.BUTTONS,
}


def confirm(request: Request) -> Response:
    """Return the confirmation page of an action."""
    button, project = _target(request)
    question = button.ask(project, request.query_params)
    back = _address(project.name, button)
    if question is None:
        lines = ["It was done, or undone, meanwhile."]
        return HTMLResponse(render_message("There is nothing to do", lines, [Link("Go on", back)]), 409)
    if button.is_prepared:
        prepare(request.app.state.workspace)
    form = {
        "action": request.url.path,
        "token": form_token(request, request.url.path),
        "word": question.word,
        "fields": question.shown,
        "back": back,
    }
    return HTMLResponse(render_confirm(project.name, question.question, question.lines, form, logout_token(request)))


async def press(request: Request) -> Response:
    """Run the confirmed action and return a page with its result."""
    form = await checked_form(request)
    return await run_in_threadpool(_press, request, form)


def _press(request: Request, form: FormData) -> Response:
    button, project = _target(request)
    outcome = button.act(request.app.state.workspace, project, form)
    title = "Done" if outcome.done else "It was refused"
    links = [Link("Go on", _address(project.name, button))]
    return HTMLResponse(render_message(title, [outcome.text], links), 200 if outcome.done else 409)


def _target(request: Request) -> tuple[Action, ProjectFacts]:
    workspace: Workspace = request.app.state.workspace
    button = BUTTONS.get(request.path_params["action"])
    project = overview.project_named(workspace, request.path_params["name"]) if button else None
    if button is None or project is None:
        raise HTTPException(404, "There is no such project, or nothing of that name to do with it.")
    return button, overview.overview(workspace, [project]).projects[0]


def _address(name: str, button: Action) -> str:
    return f"/projects/{quote(name, safe='')}{button.page}"


ROUTES = [
    Route("/projects/{name}/{action}", confirm, methods=["GET"]),
    Route("/projects/{name}/{action}", press, methods=["POST"]),
]
