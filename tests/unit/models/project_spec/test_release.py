"""What a spec may say of releases."""

import pytest
from pydantic import ValidationError

from models.project_spec.release import CanaryRule, ReturnOn


@pytest.mark.parametrize("share", [0.0, 1.0, 2.0])
def test_a_share_is_a_part_of_the_requests(share):
    with pytest.raises(ValidationError):
        CanaryRule(share=share)


def test_errors_return_by_default_and_latency_only_where_it_is_said():
    assert (ReturnOn().errors, ReturnOn().latency_ms, ReturnOn().metric) == (0.05, None, True)
