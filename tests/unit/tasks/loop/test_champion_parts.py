"""What the champion decides of a key; that plans follow it is in test_step_cache.py."""

from models.errors import StoreError
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Data
from models.serving.registry import BEST, JUDGED_BEST, RIVAL, RegisteredVersion
from tasks.loop.champion_parts import BEST_RIVAL, EQUAL_ROWS, equal_rows_parts, rival_parts

TAGS = {"loopline.weights_sha256": "v" * 64, RIVAL: "1:a", JUDGED_BEST: "0:b", BEST: "4:c"}
CHAMPION = RegisteredVersion(number="5", tags=TAGS)


def data(**split):
    return Data.model_validate({"source": "d.csv", "target": "y", "split": split})


def away():
    raise StoreError("the registry is away")


def test_a_model_is_compared_with_the_champion_and_its_reference_and_the_champion_with_its_own_rivals():
    assert rival_parts(CHAMPION, "w") == {"input:champion": CHAMPION.identity, BEST_RIVAL: "4:c"}
    assert rival_parts(CHAMPION, "v" * 64) == {"input:champion": "1:a", BEST_RIVAL: "0:b"}
    assert rival_parts(None, "w") == {"input:champion": ""}


def test_the_rule_for_equal_rows_is_that_of_the_spec_then_of_the_last_loop_then_of_the_champion():
    record = StepRecord(step="prepare", key="k", parts={EQUAL_ROWS: "apart"}, digest="d", loop_id="l", finished=0.0)
    assert equal_rows_parts(data(equal_rows="together"), [record], away) == {EQUAL_ROWS: "together"}
    assert equal_rows_parts(data(), [record], away) == {EQUAL_ROWS: "apart"}
    assert equal_rows_parts(data(), [], lambda: CHAMPION) == {EQUAL_ROWS: "apart"}
    assert equal_rows_parts(data(), [], lambda: None) == {EQUAL_ROWS: "together"}
    assert equal_rows_parts(data(), [], away) == {EQUAL_ROWS: "together"}
    assert equal_rows_parts(data(by="group", column="g"), [record], away) == {}
