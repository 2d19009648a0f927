import pytest
from pydantic import ValidationError

from models.project_spec.data import Data, SqlQuery


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"target": ["a"]}, "write its name alone, `a`"),
        ({"target": ["a", "a"]}, "several different ones"),
        ({"target": "a", "task": "multilabel"}, "needs a list of 0/1 columns"),
        ({"target": "a", "task": "quantile"}, "write `quantiles"),
        ({"target": "a", "quantiles": [0.9, 0.1]}, "expected ascending"),
        ({"quantiles": [0.1, 0.9]}, "quantiles are of one target"),
        ({"task": "binary"}, "several targets are a regression or a multilabel task"),
        ({"split": {"by": "stratified"}}, "stratified needs one target"),
        ({"target": [f"y{at}" for at in range(201)]}, "got 201 columns, expected 200 at most"),
        ({"target": "a", "quantiles": [at / 300 for at in range(1, 202)]}, "at most 200"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_with_the_cure(words, message):
    with pytest.raises(ValidationError, match=message):
        Data.model_validate({"source": "x.csv", "target": ["a", "b"], **words})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"split": {"by": "random"}}, "got a split by random: say `split: {by: group, column: query}`"),
        ({"split": {"by": "group", "column": "grade"}}, "'grade' is both the target and the group"),
        ({"features": {"columns": ["x", "query"]}}, "features: 'query' names the groups of the ranking"),
        ({"features": {"kinds": {"query": "categorical"}}}, "features: 'query' names the groups of the ranking"),
        ({"kind": "image", "image": {"height": 2, "width": 2}}, "task ranking is for tables, got kind image"),
        ({"target": ["grade", "b"]}, "several targets are a regression or a multilabel task, got task ranking"),
        ({"quantiles": [0.1, 0.9]}, "quantiles are of a regression, got task ranking"),
        ({"weight": "w"}, "a ranking counts every group alike, got w"),
        ({"target_scale": "log"}, "the target of a ranking is a grade"),
        ({"unlabelled": True}, "a row without a grade has no place"),
    ],
)
def test_a_ranking_has_groups_and_one_grade_a_row(words, message):
    ranking = {"source": "x.csv", "target": "grade", "task": "ranking", "split": {"by": "group", "column": "query"}}
    assert Data.model_validate(ranking).task == "ranking"
    with pytest.raises(ValidationError, match=message):
        Data.model_validate({**ranking, **words})


def test_what_is_known_beforehand_is_neither_target_nor_key():
    series = {"source": "x.csv", "target": "y", "kind": "series", "split": {"by": "time", "column": "t"}}
    for known in (["y"], ["t"], ["shop"], ["x", "x"]):
        window = {"length": 3, "series_key": "shop", "known_future": known}
        with pytest.raises(ValidationError, match=f"window.known_future: got '{known[0]}', expected different columns"):
            Data.model_validate({**series, "window": window})


def test_quantiles_are_of_tables_images_and_series_with_outputs_that_can_be_counted():
    series = {"source": "x.csv", "target": "y", "kind": "series", "split": {"by": "time", "column": "t"}}
    many = {**series, "window": {"length": 3, "horizon": {"first": 1, "last": 100}}}
    assert Data.model_validate({**many, "quantiles": [0.1, 0.9], "task": "quantile"}).quantiles == [0.1, 0.9]
    with pytest.raises(
        ValidationError, match="got 300 outputs, 3 for each horizon of the window, expected 200 at most"
    ):
        Data.model_validate({**many, "quantiles": [0.1, 0.5, 0.9]})
    with pytest.raises(ValidationError, match="kind text predicts characters: remove `quantiles`"):
        Data.model_validate({"source": "x.csv", "kind": "text", "text": {"length": 8}, "quantiles": [0.1, 0.9]})


def test_one_target_several_and_quantiles_are_taken():
    assert Data(source="x.csv", target=["a", "b"]).targets == ["a", "b"]
    assert Data(source="x.csv", target="a", quantiles=[0.1, 0.9]).target_name == "a"
    assert Data(source="x.csv", target=["a", "b"], task="multilabel").target_name == "a, b"


SHAPES = {"image": {"height": 2, "width": 2}, "window": {"length": 6, "horizon": 2}, "text": {"length": 8}}


@pytest.mark.parametrize(("key", "kind"), [("image", "image"), ("window", "series"), ("text", "text")])
def test_the_shape_of_another_kind_is_refused_as_no_stage_would_ask_the_same_of_it(key, kind):
    with pytest.raises(ValueError, match=f"`data.{key}` is for {kind}, but kind is table: say `kind: {kind}`"):
        Data.model_validate({"source": "a.csv", "target": "y", key: SHAPES[key]})


def _query(**keys: str) -> SqlQuery:
    return SqlQuery(**{"sql": "select * from orders", "at": "${WAREHOUSE_URL}", **keys})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"at": "postgresql://ada:hush@host/shop"}, "holds a password"),
        ({"at": "postgresql://host/shop?password=hush"}, "holds a password"),
        ({"at": "postgresql://ada:hu/sh@host/shop"}, "holds a password"),
        ({"at": "mysql://ada@host/shop?PASSWD=hush"}, "holds a password"),
        ({"at": "postgresql://host/shop?%70assword=hush"}, "holds a password"),
        ({"at": "postgresql://host/shop?a=b&p%41ss%77ord=hush"}, "holds a password"),
        ({"at": "shop"}, "expected .* or an address such as postgresql:"),
        ({"sql": "-- all of them\ndelete from orders"}, "begins with delete, expected one query"),
    ],
)
def test_a_query_that_writes_and_a_password_are_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _query(**keys)


def test_a_password_may_be_a_variable() -> None:
    assert _query(at="postgresql://ada:${SECRET}@host/shop").at == "postgresql://ada:${SECRET}@host/shop"
    assert _query(at="postgresql://host:5432/shop?application_name=a@b").at.endswith("a@b")
    assert _query(sql="with x as (select 1) select * from x;").sql == "with x as (select 1) select * from x"


def test_a_cursor_needs_an_id() -> None:
    with pytest.raises(ValidationError, match=r"source\.cursor needs `id`"):
        Data(source=_query(cursor="updated_at"), target="y")
    assert Data(source=_query(cursor="updated_at"), target="y", id="id").source == _query(cursor="updated_at")
