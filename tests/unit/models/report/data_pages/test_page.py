"""The pages of the data: every name is escaped, limits are told, two versions stand side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from models.report.data_pages.page import (
    DataVersion,
    PageContext,
    amount,
    chart,
    render_against,
    render_data,
    render_list,
)
from models.validation.data_profile import (
    Categories,
    CheckedExpectation,
    ColumnProfile,
    DataProfile,
    Histogram,
    IdSketch,
    SampleRow,
)

EVIL = "<script>alert(1)</script>"
VERSION = DataVersion(
    "tiny", "0a1b2c3d4e.dir", "r4w.dir", "tiny-1", 1.0, {"raw_rows": 100, "train": 60}, 3, "data.csv", ["1", "2"]
)
PLACE = PageContext(now=61.0)


def profile(**changes: Any) -> DataProfile:
    number = ColumnProfile(
        name=EVIL, role="input", kind="numeric", reason="its cells are numbers", missing=0.25, distinct=7,
        quantiles=[0.0, 1.0, 2.0, 3.0, 9.0], metric="roc_auc", score=0.75,
        histogram=Histogram(width=1.0, first=0, counts=[[0, 5, 3, 0], [0, 1, 9, 0]]),
    )  # fmt: skip
    target = ColumnProfile(
        name="y", role="target", kind="string", reason="", distinct=2,
        categories=Categories(names=["no", EVIL], counts=[[8, 0, 0], [0, 10, 0]]),
    )  # fmt: skip
    check = CheckedExpectation(
        stage="raw", expectation="column_values_to_not_be_null", column=EVIL, success=False, severity="warn",
        unexpected_count=25, examples=[EVIL],
    )  # fmt: skip
    values: dict[str, Any] = {
        "source": "data.csv", "num_raw": 100, "num_prepared": 90, "num_counted": 18, "rows": {"train": 60},
        "groups": ["no", EVIL], "columns": [target, number], "num_columns": 3000, "validation": [check],
        "dropped": {"without a target": 10}, "shown_columns": [EVIL],
        "ids": IdSketch(num_rows=2, hashes=[1, 2], is_by_id=True),
        "sample": [SampleRow(number=1, split="train", cells=[EVIL])],
    }  # fmt: skip
    return DataProfile(**{**values, **changes})


def test_the_page_tells_columns_limits_checks_and_rows_and_escapes_all() -> None:
    page = render_data(VERSION, profile(), [replace(VERSION, data="other.dir")], ["raw.parquet"], PLACE)
    assert "<script" not in page
    for text in (
        "Counted in 18 of 90 rows", "the first 2 of 3000 columns", "10 rows: without a target", "25 %",
        "Every value is there.", "25 rows break it.", "half within 1 to 3, median 2 (0 to 9)", "ROC AUC",
        'href="/loops/tiny-1"', "/projects/tiny/versions/2", 'value="other.dir"', "/data/0a1b2c3d4e.dir/raw.parquet",
        "1 of 100 rows of the source",
    ):  # fmt: skip
        assert text in page, text


def test_what_is_not_there_is_said() -> None:
    assert "was not recorded" in render_data(VERSION, None, [], [], PLACE)
    removed = render_data(replace(VERSION, is_removed=True), None, [], [], PLACE)
    assert "clean-up has removed" in removed
    assert "was not recorded" not in removed
    hidden = render_data(VERSION, profile().without_rows(), [], [], PLACE)
    assert "data.show_rows: false" in hidden
    assert "<h2>Rows" not in hidden
    assert "(0 to 9)" not in hidden
    assert "25 rows break it." in hidden
    assert "for example" not in hidden


def test_pictures_are_shown_with_their_numbers() -> None:
    picture = SampleRow(number=7, split="test", cells=["cat"], picture="AAAA")
    page = render_data(VERSION, profile(sample=[picture]), [], [], PLACE)
    assert '<img src="data:image/png;base64,AAAA" alt="row 7">' in page


def test_two_versions_stand_side_by_side() -> None:
    after = replace(VERSION, data="new.dir")
    columns = profile().columns
    shifted = columns[1].model_copy(
        update={"histogram": Histogram(width=1.0, first=40, counts=[[0, 50, 30, 0]]), "missing": 0.5}
    )
    newer = profile(columns=[columns[0], shifted, columns[0].model_copy(update={"name": "fresh"})])
    newer = newer.model_copy(update={"ids": IdSketch(num_rows=2, hashes=[2, 3], is_by_id=True)})
    page = render_against(VERSION, after, (profile(), newer), PLACE)
    assert "<script" not in page
    for text in ("<dt>came</dt><dd>1</dd><dt>went</dt><dd>1</dd><dt>stayed</dt><dd>1</dd>", "25 % → 50 %", "100 %"):
        assert text in page, text
    assert page.index(">came</span>") < page.index("100 %") < page.index("<code>y</code>")
    assert "/data/0a1b2c3d4e.dir?against=new.dir" in page
    assert "cannot be compared" in render_against(VERSION, after, (None, profile()), PLACE)


def test_the_list_names_what_was_trained_on_each() -> None:
    page = render_list({"tiny": [VERSION], "never": []}, PLACE)
    assert "/data/0a1b2c3d4e.dir" in page
    assert "/projects/tiny/versions/1" in page
    assert "loopline run never" in page
    assert "no project" in render_list({}, PLACE)


def test_charts_are_told_in_words_and_times_are_dates() -> None:
    (target, number) = profile().columns
    assert 'aria-label="y by no, &lt;script&gt;' in chart(target, ["no", EVIL])
    assert 'class="c7"' in chart(
        number.model_copy(update={"histogram": Histogram(width=1, first=0, counts=[[0, 5, 0]])}), ["a", "b"]
    )
    assert chart(ColumnProfile(name="x", role="left out", kind="list", reason=""), [""]) == ""
    assert amount(86400.0, "seconds") == "1970-01-02"
    assert amount(1e300, "seconds") == "1e+300"
