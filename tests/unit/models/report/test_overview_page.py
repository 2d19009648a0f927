"""The pages show what is told, escape all of it, and fetch nothing."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.report import overview_page as page
from models.report.facts import (
    FinishedLoop,
    IngestSummary,
    Lag,
    LastLoop,
    PendingApproval,
    SearchSummary,
    ServiceSummary,
    StoreUsage,
)
from models.report.overview_page import Link, front_page, render_project, tool_links
from models.triggers.signal import Decision, Signal
from tests.told_facts import NOW, facts, findings, window, workspace
from tests.unit.models.monitoring.conftest import breach
from tests.wide import examples

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Outline(HTMLParser):
    """Every element that opens is closed, in order; what it fetches and what runs is noted."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in given), attrs
        self.tags.append(tag)
        self.fetched += [str(given[name]) for name in ("src",) if name in given]
        self.fetched += [str(given["href"])] if tag == "link" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def full() -> dict[str, object]:
    signal = Signal(id="s", kind="decay", at=NOW - 60, reason="roc_auc fell")
    return {
        "monitor": findings(*[window(number) for number in range(12)], window(12, decayed=True)),
        "decisions": [Decision(signal=signal, at=NOW - 60, action="wait", reasons=["cooldown"], until=NOW + 3600)],
        "history": [
            FinishedLoop(
                loop_id="l-1", ended=NOW - 9, outcome="kept", trigger="new_data", seconds=340.0, reason="Kept."
            )
        ],
        "waiting": PendingApproval(flow_run="r", reason="12,000 rows came", since=NOW - 60, until=NOW + 999),
        "data": IngestSummary(status="warned", failing=["sex: nulls"], rows=344, ingested=NOW - 5),
        "owed": ["train"],
    }


def test_the_first_page_tells_who_needs_a_person_first() -> None:
    services = {
        "prefect": ServiceSummary(state="running", url="http://127.0.0.1:4200"),
        "worker": ServiceSummary(state="failed"),
    }
    told = workspace(
        facts(name="well"),
        facts(name="sick", error="broken"),
        services=services,
        stores=[StoreUsage(name="mlflow", size_bytes=1_740_000)],
        sized=NOW - 60,
    )
    seen = Outline(page.render_index(told))
    assert seen.text.index("sick") < seen.text.index("champion 2 holds its verdict")
    assert "1.74 MB" in seen.text
    assert "50 GB free of 100 GB" in seen.text
    assert seen.fetched == ["/style.css", "data:,"]


def test_many_projects_are_a_table_that_is_filtered_by_name_and_state() -> None:
    many = [facts(name=f"well-{number}") for number in range(30)]
    told = workspace(*many, facts(name="sick", error="broken spec"))
    whole = Outline(page.render_index(told)).text
    assert whole.index("sick") < whole.index("well-0")
    assert whole.count("holds its verdict") == 30
    for words in ("SICK", "broken spec"):
        filtered = Outline(page.render_index(told, words=words)).text
        assert ("well-0" in filtered, "broken spec" in filtered, "all 31" in filtered) == (False, True, True)
    nothing = page.render_index(told, words="<nothing>")
    assert ("No project has these words." in nothing, "<nothing>" in nothing) == (True, False)


def test_a_project_is_told_with_its_history() -> None:
    html = page.render_project(facts(**full()), NOW, [Link("runs in Prefect", "http://127.0.0.1:4200/runs")])
    seen = Outline(html)
    for words in (
        "roc_auc 0.73 (0.72 to 0.74), 5000 rows",
        "−0.01 (−0.02 to +0.001) against version 2",
        "Shall it be retrained?",
        "80 % labelled",
        "not promoted",
        "6 min",
        "not now",
        "cooldown",
        "sex: nulls",
        "would begin at train",
        "c0ffee123456",
    ):
        assert words in re.sub(r"\s+", " ", seen.text), words
    assert 'href="/projects/flights/rollback"' in html
    assert 'href="http://127.0.0.1:4200/runs"' in html


def test_a_project_whose_spec_is_broken_shows_the_error_and_no_buttons() -> None:
    html = page.render_project(facts(error="project.yaml:2: wrong"), NOW, [])
    assert "project.yaml:2: wrong" in Outline(html).text
    assert "/retrain" not in html


@examples(25)
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])),
    st.sampled_from(["<script>", '"><img src=x onerror=y>', "{{ 7*7 }}", "javascript:"]),
)
def test_whatever_a_user_wrote_stays_text(text: str, hostile: str) -> None:
    evil = f"{hostile}{text}</script>'\""
    told = facts(name=evil, folder=evil, description=evil, **full())
    for html in (
        page.render_project(told, NOW, [Link(evil, f"javascript:{evil}")]),
        page.render_index(workspace(told, workspace=evil)),
        page.render_confirm(
            evil, evil, [evil], {"action": "/x", "token": "t", "word": evil, "fields": {evil: evil}, "back": "/"}
        ),
        page.render_message(evil, [evil]),
        page.render_login("t", "/", wrong=True),
    ):
        seen = Outline(html)
        assert not {"script", "img", "iframe", "object"} & set(seen.tags)
        assert set(seen.fetched) == {"/style.css", "data:,"}
        assert 'href="javascript' not in html


def test_links_that_could_run_code_lead_nowhere() -> None:
    assert 'href="#"' in page.render_project(facts(), NOW, [Link("evil", "javascript:alert(1)")])


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (10**15, "1 PB"), (10**19, "1e+04 PB")],
)
def test_sizes_are_short(count: int, words: str) -> None:
    assert page.size(count) == words


def test_what_comes_next_names_schedule_and_triggers() -> None:
    told = facts(next_loop=NOW, schedule="0 3 * * 1", triggers=["new_data"])
    assert page.upcoming(told) == "2027-01-15 08:00 UTC (0 3 * * 1), or on new data"
    assert page.upcoming(facts(triggers=["decay"])) == "when asked, on decay"
    assert page.upcoming(facts()) == "when asked"


def test_the_last_whole_window_of_the_champion_counts() -> None:
    monitor = findings(window(1), window(2, version="1"), window(3, whole=False))
    last = page.latest(facts(monitor=monitor))
    assert last is not None
    assert (last.id, page.coverage(last)) == ("2/1", "80 %")
    assert page.latest(facts()) is None


def test_mlflows_page_is_asked_for_runs_and_models() -> None:
    """It begins with the traces of language models otherwise."""
    assert front_page("prefect", "http://h:4200") == "http://h:4200"
    assert front_page("mlflow", "http://h:5000/") == "http://h:5000/#/experiments?workflowType=machine_learning"


def test_links_lead_to_the_very_thing() -> None:
    where = {"prefect": "http://p", "mlflow": "http://m", "optuna": "http://o"}
    waiting = PendingApproval(flow_run="r", reason="rows came", since=NOW, until=NOW + 9)
    told = facts(loop=LastLoop(flow_run="f-1"), search=SearchSummary(study="flights-1"), waiting=waiting)
    assert [link.address for link in tool_links(told, where)] == [
        "http://m/#/models/flights?workflowType=machine_learning",
        "http://p/runs/flow-run/f-1",
        "http://p/runs/flow-run/r",
        "http://o/study/flights-1",
    ]
    before = facts(champion=None, challenger=None, loop=LastLoop(), search=SearchSummary(), waiting=None)
    assert [link.address for link in tool_links(before, where)] == ["http://p/runs"], "its first loop has not begun"
    assert tool_links(told, {}) == []


def test_a_broken_contract_says_beside_the_button_not_to_retrain_now() -> None:
    words = "mend the source first. Retraining now would teach the fault"
    assert words in render_project(facts(monitor=findings(window(1, breaches=[breach()]))), NOW, [])
    assert words not in render_project(facts(monitor=findings(window(1))), NOW, [])


def test_a_look_at_another_version_is_not_shown_as_the_champions() -> None:
    before = findings(champion=None, reason="there is no champion to monitor")
    html = render_project(facts(monitor=before), NOW, [])
    assert "there is no champion to monitor" not in html
    assert "version 2 has not been watched yet" in html


def test_pages_say_what_waits_for_a_tool_since_when_and_what_to_do() -> None:
    lags = [Lag("MLflow", "moves", "flights", 2, NOW - 300), Lag("Prefect", "events", "flights", 1, NOW - 7200)]
    project = facts(behind=lags, mlflow="<b>away</b>")
    for html in (page.render_index(workspace(project)), page.render_project(project, NOW, [])):
        text = " ".join(Outline(html).text.split())
        assert "flightsMLflowdoes not follow: <b>away</b>" in text
        assert "flightsMLflowmoves25 min ago flightsPrefectevents12 h ago" in text
        assert "What to do: loopline docs how-to/when-it-fails#a-tool-is-behind" in text
    assert "Waits for a tool" not in page.render_index(workspace(facts())) + page.render_project(facts(), NOW, [])
