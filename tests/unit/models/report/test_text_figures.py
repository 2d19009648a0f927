import numpy as np

from models.report.text_figures import bits_by_position


def test_each_model_and_reference_has_its_line():
    bits = np.random.default_rng(0).gamma(2, 1, (20, 16))
    svg = bits_by_position({"challenger": bits, "champion": bits + 1}, {"bz2": 1.978, "none": None}).decode()
    assert f"challenger {bits.mean():.3f}" in svg
    assert f"champion {bits.mean() + 1:.3f}" in svg
    assert "bz2 1.978" in svg
    assert "none" not in svg.split("<defs>")[-1].split("</style>")[-1].replace("fill: none", "").replace('"none"', "")


def test_its_axes_are_labelled_with_numbers():
    svg = bits_by_position({"challenger": np.ones((2, 200))}, {}).decode()
    assert "mathdefault" not in svg
    assert ">100<" in svg
