"""How often a duty of the reaper runs."""

from hypothesis import given
from hypothesis import strategies as st

from reaper.duty import pause


@given(st.floats(0, 30), st.floats(0.1, 10))
def test_a_duty_takes_a_tenth_of_the_time_and_is_never_put_off_for_long(took_s: float, every_s: float) -> None:
    wait_s = pause(took_s, every_s)
    assert every_s <= wait_s <= 60.0
    assert wait_s in (every_s, 60.0) or took_s / wait_s <= 0.1001
