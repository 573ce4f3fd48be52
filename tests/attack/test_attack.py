"""Proof by attack: climbs, leaps and changed jobs find nothing that contradicts an answer."""

import pytest

from tests.attack.attack import OBJECTIVES, attack

TRIES = 150


@pytest.mark.parametrize("number", range(4 * len(OBJECTIVES)))
def test_no_attack_proves_an_answer_wrong(number):
    assert not list(attack(number, TRIES))
