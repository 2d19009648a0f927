"""What was seen before is known however often and in whatever pieces it came."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.data.seen_hashes import SortedHashSet


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=30))
def test_each_hash_is_new_once(pieces):
    seen, known, found = SortedHashSet(), set(), []
    for piece in pieces:
        places = seen.first_places(np.array(piece, dtype=np.uint64))
        found += [piece[place] for place in places]
        assert sorted(places) == list(places)
        for place, value in enumerate(piece):
            assert (place in places) == (value not in known)
            known.add(value)
    assert sorted(found) == sorted(known)
