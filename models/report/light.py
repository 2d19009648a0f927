"""The traffic light: the most urgent fact about a project or workspace, in words.

Red: the served model is wrong or gets worse, or its state is unknown. Amber: it still serves, but a person must act.
Order of the checks: docs/how-to/monitoring.md (broken contract, realised metric, then checks that only warn).
"""

from __future__ import annotations

from collections.abc import Iterator

from models.report.data import has_many_unusable, labelled
from models.report.facts import REGISTRY_AWAY, Colour, DiskUsage, ProjectFacts, ServiceSummary, TrafficLight
from models.report.pages import interval, show
from models.serving.registry import RegisteredVersion
from models.triggers.signal import clock

RANK: dict[Colour, int] = {"red": 0, "amber": 1, "green": 2}
LOW_DISK_BYTES = 2 * 10**9
FULL_DISK_BYTES = 5 * 10**8
MOST_NAMES = 8
"""Projects that the light of a workspace names."""
Check = tuple[Colour, str]


def light(facts: ProjectFacts) -> TrafficLight:
    """Return the light of a project, with every reason for its colour, worst first."""
    checks = sorted(_checks(facts), key=lambda check: RANK[check[0]])  # stable: the order of the checks within a colour
    worst = [reason for colour, reason in checks if colour != "green"]
    return TrafficLight(colour=checks[0][0], reasons=worst or [checks[0][1]])


def workspace_light(projects: list[ProjectFacts], services: dict[str, ServiceSummary], disk: DiskUsage) -> TrafficLight:
    """Return the light of a whole workspace: its own problems, then its projects'."""
    checks = [*_disk(disk), *_services(services)]
    causes = dict.fromkeys(facts.registry for facts in projects if facts.registry)
    checks += [("amber", cause) for cause in causes]
    for colour in ("red", "amber"):
        names = [
            facts.name for facts in projects if facts.light.colour == colour and facts.summaries != [REGISTRY_AWAY]
        ]
        if names:
            verb = "needs" if len(names) == 1 else "need"
            rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            named = f"{', '.join(names[:MOST_NAMES])}{rest}"
            checks.append((colour, f"{named} {verb} a person" + (" now" if colour == "red" else "")))
    if not checks:
        none = "there is no project yet: `loopline new`, or New project on the first page, makes one"
        checks = [("green", "every project is well" if projects else none)]
    checks.sort(key=lambda check: RANK[check[0]])
    return TrafficLight(colour=checks[0][0], reasons=[reason for _, reason in checks])


def _checks(facts: ProjectFacts) -> Iterator[Check]:
    if facts.error:
        for line in facts.error.splitlines():
            yield "red", line
        return
    if facts.current_monitoring and (facts.windows or facts.current_monitoring.state != "green"):
        yield facts.current_monitoring.state, facts.current_monitoring.reason
    yield from _looped(facts)
    if facts.serving and facts.serving.workers:
        for trouble in facts.serving.troubles:
            yield "amber", f"the server continues without it: {trouble}"
    if facts.waiting:
        yield "amber", f"a person is asked whether to retrain: {facts.waiting.reason}"
    if facts.undecided:
        first, *rest = facts.undecided
        further = f" (and {len(rest)} more)" if rest else ""
        yield "amber", f"asked at {clock(first.at)}, not decided yet: {first.reason}{further}"
    yield from _champion(facts)


def _champion(facts: ProjectFacts) -> Iterator[Check]:
    if facts.registry:
        yield "amber", facts.registry
    elif facts.champion is None:
        yield "amber", "there is no champion" + ("" if facts.loop.state != "never run" else ": no loop was run yet")
    elif not facts.windows:
        yet = facts.current_monitoring.reason if facts.current_monitoring else "not watched yet"
        yield _unwatched(facts.champion, yet)


def _unwatched(champion: RegisteredVersion, yet: str) -> Check:
    """Check a champion without a complete window: its verdict, unless a person promoted it against its verdict."""
    if champion.verdict and not champion.verdict.promoted:
        reason = champion.verdict.reasons[0] if champion.verdict.reasons else champion.verdict.summary
        return "amber", f"champion {champion.number} was promoted by hand against its verdict ({reason}); {yet}"
    return "green", f"champion {champion.number} holds its verdict{_value(champion)}; {yet}"


def _looped(facts: ProjectFacts) -> Iterator[Check]:
    loop, data = facts.loop, facts.data
    named, where = f"loop {loop.loop_id}", f" at {loop.step}" if loop.step else ""
    cause = f": {loop.failure}" if loop.failure else ""
    if data.status == "rejected":
        failing = f": {data.failing[0]}" if data.failing else ""
        yield "red", f"the last data was rejected{failing}"
    elif loop.state == "rejected":
        yield "red", f"{named}: the data was rejected{where}{cause}"
    elif loop.state == "failed":
        yield "amber", f"{named} failed{where}{cause}"
    if data.status == "warned" and data.failing:
        yield "amber", f"the last data is not all it should be: {data.failing[0]}"
    if has_many_unusable(data.feedback):
        yield "amber", labelled(data.feedback)
    if loop.state == "killed":
        yield "amber", f"{named} was killed{where}: a run continues it"


def _value(version: RegisteredVersion) -> str:
    verdict = version.verdict
    if verdict is None:
        return f" ({version.metric.replace('=', ' ')})" if version.metric else ""
    estimate = verdict.challenger
    return f" ({verdict.metric} {show(estimate.value)}, {interval(estimate.low, estimate.high)})"


def _disk(disk: DiskUsage) -> Iterator[Check]:
    if disk.free_bytes < LOW_DISK_BYTES:
        colour: Colour = "red" if disk.free_bytes < FULL_DISK_BYTES else "amber"
        yield colour, f"the disk is nearly full: {disk.free_bytes / 1e9:.1f} GB free"


def _services(services: dict[str, ServiceSummary]) -> Iterator[Check]:
    for name, service in services.items():
        if service.state in ("backing off", "failed"):
            detail = f": {service.detail}" if service.detail else ""
            yield "red" if service.state == "failed" else "amber", f"the service {name} is {service.state}{detail}"
