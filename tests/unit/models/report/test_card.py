"""The model card: the verdict first and in words, all text escaped, nothing fetched."""

import re
from html.parser import HTMLParser

import pytest

from models.export.variants import VariantMeasurement
from models.judge.column_importance import ColumnImportance, Importances
from models.judge.verdict import Difference, Estimate, Gate, Parity, ServingCost, Slice, Verdict
from models.project_spec.blocks import Judge
from models.report.card import Card, Figure, Snippet, render_card, traffic_light
from models.report.style import draw
from models.report.version_page import CARD_TABS

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects what a browser would fetch and run, and whether every element is closed."""

    def __init__(self, html):
        super().__init__()
        self.fetched, self.tags, self.open = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        self.fetched += [values[key] for key in ("src", "srcset", "data", "poster") if key in values]
        if tag == "link":
            self.fetched.append(values.get("href"))
        assert not [key for key in values if key.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def gate(name, passed=True):
    return Gate(name=name, passed=passed, reason=f"because of {name}")


def verdict(**more):
    estimate = Estimate(value=0.7512, low=0.7401, high=0.7633)
    base = {
        "decision": "promote",
        "reasons": ["Promoted. Challenger 0.7512 against champion 0.74.", "sample: enough"],
        "gates": [gate("sample"), gate("champion")],
        "task": "binary",
        "metric": "roc_auc",
        "direction": "maximize",
        "rules": Judge(),
        "num_samples": 5000,
        "challenger": estimate,
        "champion": estimate,
        "champion_id": "3",
        "baseline": Estimate(value=0.5),
        "baseline_name": "share of the positive class",
        "difference": Difference(value=0.01, low=0.005, high=0.015, p_value=0.002, reached=True),
        "over_baseline": Difference(value=0.25, low=0.2, high=0.3, p_value=0.002, reached=True),
        "slices": [Slice(column="origin", value="<JFK>", num_samples=40, challenger=estimate, lost=True, p_holm=0.01)],
        "metrics": {"roc_auc": {"challenger": 0.7512, "champion": 0.74, "baseline": None}},
        "challenger_cost": ServingCost(latency_ms=0.03, size_mb=1.2),
        "parity": Parity(max_difference=1e-7, tolerance=1e-5, num_examples=64),
        "digests": {"target": "ab12"},
    }
    return Verdict(**{**base, **more})


def card(**more):
    picture = draw(lambda figure: figure.subplots().plot([0, 1]))
    base = {
        "project": "flights",
        "verdict": verdict(),
        "version": "4",
        "figures": [Figure("ROC", "How well late flights are ranked.", picture)],
        "data": {"rows": 336_776},
        "schema": [{"column": "carrier", "kind": "categorical"}, {"column": "distance"}],
        "training": {"epochs": 10},
        "settings": {"lr": 0.001},
        "search": {"trials": 20},
        "provenance": {"commit": "4f2c1ab"},
        "usage": [Snippet("Load it", "session.run(None, {'a': 1 < 2})")],
        "limits": ["Other airports."],
        "links": {"run": "http://127.0.0.1:5000/#/run"},
    }
    return Card(**{**base, **more})


def test_the_verdict_comes_first_in_words_then_numbers_with_intervals():
    html = render_card(card())
    places = [html.index(each) for each in ("Promoted. Challenger", "0.7401 to 0.7633", "because of champion", "ROC")]
    assert places == sorted(places)
    for text in ("336\u202f776", "version 3", "4f2c1ab", "carrier", "Other airports."):
        assert text in html


def test_the_page_is_whole_fetches_nothing_and_runs_nothing():
    html = render_card(card())
    page = Page(html)
    assert page.fetched
    assert all(each.startswith("data:image/") for each in page.fetched)
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import", html)
    assert len(html) < 1_500_000


def test_every_text_of_a_user_is_escaped():
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    reasons = [evil, evil]
    bad = card(
        project=evil,
        description=evil,
        verdict=verdict(reasons=reasons, metric=evil, metrics={evil: {"challenger": 1.0}}, digests={evil: evil}),
        figures=[Figure(evil, evil, b"<svg/>", "verdict", evil)],
        data={evil: evil},
        schema=[{evil: evil}],
        settings={evil: [evil]},
        usage=[Snippet(evil, evil)],
        links={evil: f"javascript:{evil}"},
    )
    html = render_card(bad)
    page = Page(html)
    assert "script" not in page.tags
    assert page.tags.count("img") == 1
    assert "javascript:" not in html.replace(f"javascript:{evil}", "")
    assert "onerror=alert(1)>" not in html


def test_a_first_model_with_bare_facts_makes_a_card_too():
    bare = verdict(
        champion=None, difference=None, baseline=None, over_baseline=None, slices=[], metrics={}, parity=None
    )
    html = render_card(Card(project="penguins", verdict=bare))
    Page(html)
    assert "<h2>Slices" not in html
    assert "<h2>Training" not in html


def test_each_tab_leads_to_a_part_of_the_card():
    html = render_card(card())
    parts = re.findall(r'<(?:section class="tab"|div) id="(\w+)"', html)
    assert sorted(parts) == sorted(CARD_TABS)
    assert re.findall(r'<a href="#(\w+)">', html) == [*CARD_TABS]


def test_settings_that_are_the_default_are_folded():
    html = render_card(card(settings={"lr": 0.125}, defaults={"epochs": 10, "batch": "auto"}))
    shown, folded = html.index("<td>0.125</td>"), html.index("<summary>2 settings that are the default</summary>")
    assert shown < folded < html.index("epochs</th>", folded)
    assert "Every setting is the default." in render_card(card(settings={}, defaults={"epochs": 10}))


@pytest.mark.parametrize(
    ("decision", "gates", "light"),
    [
        ("promote", [gate("sample")], "green"),
        ("keep", [gate("champion", passed=False)], "amber"),
        ("keep", [gate("champion", passed=False), gate("goal", passed=False)], "red"),
        ("keep", [gate("predictors", passed=False)], "amber"),
        ("keep", [gate("parity", passed=False)], "red"),
    ],
)
def test_the_light_says_whether_it_may_serve(decision, gates, light):
    judged = verdict(decision=decision, gates=gates)
    assert traffic_light(judged) == light
    assert f'class="light {light}"' in render_card(card(verdict=judged))


def test_the_gap_of_quantiles_is_explained_where_it_stands():
    explained = "how far the share of true values from the lowest to the highest quantile"
    gap = verdict(metrics={"pinball": {"challenger": 0.2}, "coverage_gap": {"challenger": 0.01}})
    assert explained in render_card(card(verdict=gap))
    assert explained not in render_card(card())


def test_the_variants_stand_with_the_costs_and_say_which_is_served_and_why_not_the_others():
    table = [
        VariantMeasurement(name="fp32", size_bytes=9000, latency_ms=0.05, value=0.75, loss=0.0, most_lost=0.0),
        VariantMeasurement(name="int8_dynamic", size_bytes=3000, latency_ms=0.04, value=0.74, loss=0.01, served=True),
        VariantMeasurement(name="int4", refused="may lose <0.2>"),
    ]
    html = render_card(card(variants=table))
    part = html[html.index("<h3>Variants</h3>") : html.index("<h2>Data</h2>")]
    assert part.count("✓ served") == 1
    assert "may be served, but is no smaller" in part
    assert "may lose &lt;0.2&gt;" in part
    assert "Variants" not in render_card(card())


def test_the_columns_that_matter_stand_with_their_cost_and_what_was_left_out():
    columns = [ColumnImportance(column="<b>distance", loss=0.0812, low=0.071, high=0.0914)]
    measured = Importances(columns=columns, num_columns=40, num_rows=1000, num_shuffles=5, cpu_s=0.62)
    assert "has learnt from these rows" not in render_card(Card(project="p", verdict=verdict(), importances=measured))
    measured = measured.model_copy(update={"is_learnt": True})
    html = render_card(Card(project="p", verdict=verdict(), importances=measured))
    assert "&lt;b&gt;distance" in html
    assert "0.071 to 0.0914" in html
    assert "1 of 40, those that move the predictions most, columns, 1000 validation rows, 5 shuffles" in html
    assert "0.62 CPU-seconds" in html
    assert "has learnt from these rows" in html


def test_what_to_try_next_stands_below_the_reasons_and_only_then():
    assert "<p>What next</p>" not in render_card(Card(project="p", verdict=verdict()))
    html = render_card(Card(project="p", verdict=verdict(decision="keep"), next_steps=["About <1,000> more rows."]))
    assert html.index("enough") < html.index("About &lt;1,000&gt; more rows.")
