"""Numbers and layouts as short text, as answers, reports and refusals write them.

DOT: between the parts of a line.
gib: bytes as GiB, without the unit.
last_words: words for the axes that come last in a line.
layout_line: a layout in a line.
like: what writes seconds with as many digits as a whole has.
NEVER: where there is no number.
no_plan_text: why a search has no plan.
offloaded_text: what is off the GPU, the optimizer left out.
otherwise_text: that a plan was made with other numbers than those of now.
parameters: a number of parameters, such as 70.6 B.
percent: a fraction in percent.
plural: a count with its noun.
recompute_text: recomputation in a word.
seconds: seconds with about four digits.
seconds_like: seconds with as many digits as `seconds` gives a whole.
setting_words: settings of a launch that change, as they are typed.
share: a chosen fraction in percent, as short as it is.
SHORT_MODULES: recompute modules as tables write them.
SHORT_OFFLOADED: modules on the host as tables write them.
signed: a fraction in percent, with its sign.
small_percent: a fraction in percent, or that it is less than the digits show.
stages_sentence: what uneven stages mean, in a sentence.
tokens: a number of tokens, such as 15 T.
usual_schedule: the schedule of a layout where none is named.
zero_text: the ZeRO stage, with its sharding group where that is not all of dp.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.words.layouts import (
        SHORT_MODULES,
        SHORT_OFFLOADED,
        last_words,
        layout_line,
        no_plan_text,
        offloaded_text,
        otherwise_text,
        recompute_text,
        stages_sentence,
        usual_schedule,
        zero_text,
    )
    from trainplan.cli.words.numbers import (
        DOT,
        NEVER,
        gib,
        like,
        parameters,
        percent,
        plural,
        seconds,
        seconds_like,
        share,
        signed,
        small_percent,
        tokens,
    )
    from trainplan.cli.words.settings import setting_words
else:
    __getattr__ = door(__name__)
