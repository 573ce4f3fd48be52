"""What a function of Python modules returns, as far as their text states it. Nothing is executed.

Literals, arithmetic, names, attributes that are set, branches and loops whose conditions are known,
constructors and plain functions are followed, across modules where a tree of them is there; all
else is an `Unread` with its line.

defaults: attributes of what is made, with those of its class
Found: a function or a class, and its module
found_in: what a name of a module leads to
Made: a call that is not followed
Module: a text, parsed
module_of: parses one
Raised: an exception that stops it
returned: what a function returns
Symbol: a name of another module
Unread: a value that only a run has
"""

from trainplan.planner.runtimes.python_source.evaluate import defaults, returned
from trainplan.planner.runtimes.python_source.modules import Found, Module, found_in, module_of
from trainplan.planner.runtimes.python_source.values import Made, Raised, Symbol, Unread

__all__ = (
    "Found",
    "Made",
    "Module",
    "Raised",
    "Symbol",
    "Unread",
    "defaults",
    "found_in",
    "module_of",
    "returned",
)
