"""What one job measured helps the next one on the same device, in the same precision, with the same net."""

import pytest

from models.training.costs.speeds import Efficiency, MeasuredSpeed, compile_facts, efficiency_of, measured_speeds

OF = MeasuredSpeed(device="H100", precision="bf16", net="decoder", mfu=1.0, compile_s=40.0)


def epochs(*rates: float) -> list[dict[str, float]]:
    return [{"mfu": rate} for rate in rates]


def test_a_job_measures_before_and_after_it_was_compiled() -> None:
    plain, compiled = measured_speeds(epochs(0.1, 0.30, 0.28, 0.05, 0.36, 0.35), 3.4, OF)
    assert (plain.compiled, plain.mfu, plain.compile_s) == (False, 0.30, None)
    assert (compiled.compiled, compiled.mfu, compiled.compile_s) == (True, 0.36, 40.0)


def test_the_epoch_that_warms_up_or_has_both_kinds_of_steps_counts_nothing() -> None:
    assert [one.mfu for one in measured_speeds(epochs(0.9, 0.3), float("inf"), OF)] == [0.3]
    assert [one.mfu for one in measured_speeds(epochs(0.9), float("inf"), OF)] == [0.9]
    assert measured_speeds(epochs(0.9, 0.3), 1.5, OF) == []
    assert measured_speeds([{}, {}], float("inf"), OF) == []


def test_medians_of_the_same_device_precision_and_net() -> None:
    kept = [OF.model_copy(update={"mfu": share, "compile_s": None}) for share in (0.2, 0.25, 0.6)]
    others = [OF.model_copy(update=change) for change in ({"device": "A100"}, {"precision": "fp32"}, {"net": "mlp"})]
    found = efficiency_of([*others, *kept], "H100", "bf16", "decoder")
    assert found == Efficiency(share=0.25, num_jobs=3)
    assert found.origin("H100", "bf16", "decoder") == "learnt from 3 jobs with decoder in bf16 on H100"
    assert efficiency_of(others, "H100", "bf16", "decoder") is None
    assert compile_facts(kept, "H100", "bf16", "decoder") == (None, None)
    compiled = OF.model_copy(update={"compiled": True, "mfu": 0.3})
    assert compile_facts([*kept, compiled], "H100", "bf16", "decoder") == (pytest.approx(1.2), 40.0)
