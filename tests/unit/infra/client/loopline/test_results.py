"""What a notebook shows of a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopline import Model, Result


def details(**changed: Any) -> dict[str, Any]:
    return {
        "project": "churn",
        "version": 2,
        "decision": "promote",
        "reasons": ["sample: 181 test examples <30> are enough"],
        "metric": "roc_auc",
        "value": 0.75,
        "champion_value": 0.7,
        "metrics": {"test_f1": 0.5},
        "ran": True,
        "dataset": "abc",
        "loop_id": "churn-1",
        "addresses": {"card": "file:///card.html"},
        "card_file": None,
        **changed,
    }


def test_the_text_says_verdict_reasons_value_and_addresses() -> None:
    lines = repr(Result(details())).splitlines()
    assert lines[0] == "churn version 2: promoted"
    assert lines[1:] == [
        "  sample: 181 test examples <30> are enough",
        "  roc_auc 0.7500 (champion 0.7000)",
        "  card file:///card.html",
    ]


def test_a_loop_that_had_nothing_to_do_says_so() -> None:
    result = Result(details(ran=False, decision="keep"))
    assert (result.verdict, result.promoted) == ("not promoted", False)
    assert repr(result).startswith("Nothing to do: every step is up to date.\nchurn version 2: not promoted")


def test_a_cell_shows_the_card_in_a_frame_of_its_own(tmp_path: Path) -> None:
    card = tmp_path / "card.html"
    card.write_text('<style>body {color: red}</style><p class="a">é</p>', encoding="utf-8")
    shown = Result(details(card_file=str(card)))._repr_html_()
    assert "&lt;30&gt;" in shown
    assert 'srcdoc="&lt;style&gt;body {color: red}&lt;/style&gt;&lt;p class=&quot;a&quot;&gt;é&lt;/p&gt;"' in shown


def test_without_a_card_a_cell_shows_the_text() -> None:
    assert Result(details(card_file="/gone/card.html"))._repr_html_().endswith("</pre>")


def test_a_model_says_what_it_reads() -> None:
    model = Model({"project": "churn", "version": "2", "inputs": ["plan", "months"], "targets": ["left"]})
    assert repr(model) == "churn version 2: left from plan, months"
