"""What a version's spec asks of its server, and what is asked where none can be read."""

import pytest

from models.files import write_json
from models.project_spec.serve import Serve
from models.serving.serve_rules import SPEC_JSON, serve_rules_of


def test_it_is_the_serve_block_of_the_spec(tmp_path):
    write_json(tmp_path / SPEC_JSON, {"name": "tiny", "serve": {"up": True, "return_on": {"errors": 0.2}}})
    found = serve_rules_of(tmp_path)
    assert (found.up, found.return_on.errors, found.canary) == (True, 0.2, None)


def test_a_whole_block_comes_back_as_it_went(tmp_path):
    asked = Serve.model_validate({"canary": {"share": 0.1, "minutes": 5}, "shadow": True})
    write_json(tmp_path / SPEC_JSON, {"serve": asked.model_dump(mode="json")})
    assert serve_rules_of(tmp_path) == asked


@pytest.mark.parametrize("content", [None, {}, {"serve": {"of_tomorrow": 1}}, {"serve": []}])
def test_without_one_that_can_be_read_the_defaults_are_asked(tmp_path, content):
    if content is not None:
        write_json(tmp_path / SPEC_JSON, content)
    assert serve_rules_of(tmp_path) == Serve()
