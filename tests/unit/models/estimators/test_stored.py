from models.estimators.inputs import InputPlan
from models.estimators.stored import OutputModel, StoredEstimator, pack, unpack


def test_weights_are_read_back_as_they_were():
    outputs = [OutputModel((0, 2), b"first\nmodel"), OutputModel((1,), b""), OutputModel((), b"\x00\x01")]
    estimator = StoredEstimator(InputPlan((0.1,), (2.0,), (3, 4), 1, 2), outputs)
    assert unpack(pack(estimator)) == estimator
