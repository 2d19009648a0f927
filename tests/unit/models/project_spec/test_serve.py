"""The serve block: what a served model may cost, and which variants are tried."""

import pytest
from pydantic import ValidationError

from models.files import write_json
from models.project_spec.serve import SPEC_JSON, CanaryRule, ReturnOn, Serve, serve_rules_of, spec_of_version


def test_by_default_every_variant_is_tried_and_the_rows_say_what_may_be_lost() -> None:
    serve = Serve()
    assert serve.variants == ["int8_dynamic"]
    assert serve.max_metric_loss is None
    assert serve.max_latency_ms is None
    assert (serve.log.share, serve.log.redact, serve.log.when_full) == (1.0, [], "refuse")


def test_no_variants_at_all_may_be_asked_for() -> None:
    assert Serve(variants=[]).variants == []


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"variants": ["int4"]}, "'int8_dynamic'"),
        ({"variants": ["int8_dynamic", "int8_dynamic"]}, "int8_dynamic is named twice"),
        ({"max_metric_loss": -0.1}, "greater than or equal to 0"),
        ({"max_latency_ms": 0.0}, "greater than 0"),
        ({"log": {"share": 0.0}}, "greater than 0"),
        ({"log": {"share": 1.5}}, "less than or equal to 1"),
        ({"log": {"when_full": "forget"}}, "'refuse' or 'answer'"),
    ],
)
def test_refused(block: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Serve.model_validate(block)


@pytest.mark.parametrize("share", [0.0, 1.0, 2.0])
def test_a_share_is_a_part_of_the_requests(share):
    with pytest.raises(ValidationError):
        CanaryRule(share=share)


def test_errors_return_by_default_and_latency_only_where_it_is_said():
    assert (ReturnOn().errors, ReturnOn().latency_ms, ReturnOn().metric) == (0.05, None, True)


def test_it_is_the_serve_block_of_the_spec(tmp_path):
    write_json(tmp_path / SPEC_JSON, {"name": "tiny", "serve": {"up": True, "return_on": {"errors": 0.2}}})
    found = serve_rules_of(tmp_path)
    assert (found.up, found.return_on.errors, found.canary) == (True, 0.2, None)


def test_a_whole_block_comes_back_as_it_went(tmp_path):
    asked = Serve.model_validate({"canary": {"share": 0.1, "minutes": 5}, "shadow": True})
    write_json(tmp_path / SPEC_JSON, {"serve": asked.model_dump(mode="json")})
    assert serve_rules_of(tmp_path) == asked


def test_a_version_whose_variants_are_gone_keeps_its_other_rules(tmp_path):
    block = {"variants": ["int8_static", "fp16", "pruned"], "canary": {"share": 0.1}}
    write_json(tmp_path / SPEC_JSON, {"serve": block, "train": {"gradient_hook": "powersgd"}})
    assert serve_rules_of(tmp_path).canary == CanaryRule(share=0.1)
    assert spec_of_version(tmp_path / SPEC_JSON) == {"serve": {"canary": {"share": 0.1}}, "train": {}}


@pytest.mark.parametrize("content", [None, {}, {"serve": {"of_tomorrow": 1}}, {"serve": []}])
def test_without_one_that_can_be_read_the_defaults_are_asked(tmp_path, content):
    if content is not None:
        write_json(tmp_path / SPEC_JSON, content)
    assert serve_rules_of(tmp_path) == Serve()
