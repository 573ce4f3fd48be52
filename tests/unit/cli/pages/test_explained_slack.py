"""What the page of an explanation states of the plan's slack."""

import pytest

from trainplan.cli.pages.explain import slack_lines


@pytest.mark.parametrize(("fraction", "stated"), [(0.0, False), (0.0004, False), (0.007, True)])
def test_a_slack_that_the_first_line_leaves_out_is_stated(fraction, stated):
    lines = [*slack_lines(fraction)]
    assert [line.startswith("The plan takes 0.7 % longer") for line in lines] == [True] * stated
