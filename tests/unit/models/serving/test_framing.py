"""Frames: what was written whole is read whole, and a torn end is passed over, wherever it is torn."""

from hypothesis import given
from hypothesis import strategies as st

from models.serving.framing import framed, is_torn, unframed

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8)


@given(payloads=PAYLOADS, data=st.data())
def test_what_is_whole_is_read_and_what_is_torn_is_not(payloads, data):
    frames = [framed(payload) for payload in payloads]
    content = b"".join(frames)
    cut = data.draw(st.integers(0, len(content)))
    found = list(unframed(content[:cut]))
    whole = [payload for at, payload in enumerate(payloads) if sum(map(len, frames[: at + 1])) <= cut]
    assert [payload for _, payload in found] == whole
    end = found[-1][0] if found else 0
    assert end == sum(map(len, frames[: len(whole)]))
    assert is_torn(content[end:cut])


@given(payloads=PAYLOADS, data=st.data())
def test_reading_goes_on_from_any_offset(payloads, data):
    content = b"".join(map(framed, payloads))
    found = list(unframed(content))
    place = data.draw(st.integers(0, len(found) - 1))
    assert list(unframed(content, found[place][0])) == found[place + 1 :]


@given(payloads=PAYLOADS, data=st.data())
def test_a_changed_byte_ends_the_reading_before_it(payloads, data):
    content = bytearray(b"".join(map(framed, payloads)))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    found = [payload for _, payload in unframed(bytes(content))]
    assert found == payloads[: len(found)]
    assert len(found) < len(payloads)


def test_zeros_that_a_power_cut_leaves_are_no_records_and_torn():
    content = framed(b"one") + bytes(64)
    ((end, payload),) = unframed(content)
    assert payload == b"one"
    assert is_torn(content[end:])


def test_a_whole_record_that_was_changed_is_not_called_torn():
    content = bytearray(framed(b"one") + framed(b"two"))
    content[9] ^= 1
    assert list(unframed(bytes(content))) == []
    assert not is_torn(bytes(content))
