"""No changed document or option ends in a bug, or late; by night thousands."""

from tests.attack.readers import attack
from tests.grids import number


def test_every_changed_input_is_answered_or_refused_soon():
    findings, tally = attack(number(by_day=30, by_night=3000), seed=number(0, by_night=10_000))
    assert findings == []
    assert len(tally) > 8
