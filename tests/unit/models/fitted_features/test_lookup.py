import numpy as np
import pyarrow as pa

from models.fitted_features.lookup import Lookup


def test_unseen_and_missing_texts_have_no_number():
    texts = pa.chunked_array([["b", None], ["c", "a", ""]])
    table = Lookup(name="mean", column="city", keys=["a", "b"], values=[1.0, -2.0])
    np.testing.assert_array_equal(table.find(texts), [-2.0, np.nan, np.nan, 1.0, np.nan])
    none = Lookup(name="mean", column="city", keys=[], values=[])
    np.testing.assert_array_equal(none.find(texts), np.full(5, np.nan))
