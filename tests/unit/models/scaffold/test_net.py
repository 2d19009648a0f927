"""The lines of a first spec for a net that was named."""

import pytest
from ruamel.yaml import YAML

from models.project_spec.search import Search
from models.scaffold.net import net_lines, search_lines


@pytest.mark.parametrize("net", ["trees", "xgboost:XGBClassifier", "./boosted.py:FAMILY"])
def test_a_reference_is_quoted_for_yaml(net: str) -> None:
    (line,) = [line for line in net_lines(net) if "net" in line]
    assert YAML(typ="safe").load("\n".join(net_lines(net))) == {"model": {"net": net}}
    assert line.endswith(f'"{net}"')


@pytest.mark.parametrize(("searched", "trials"), [(["model.depth", "model.alpha"], 10), ([], 0)])
def test_a_search_is_written_if_there_is_something_to_search(searched: list[str], trials: int) -> None:
    block = YAML(typ="safe").load("\n".join(search_lines(searched)))["search"]
    assert Search.model_validate(block).trials == trials
