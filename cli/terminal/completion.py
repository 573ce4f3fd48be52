"""How bash requests completions; click knows how zsh and fish do.

Bash breaks words at `=`, `:` and `@` too (COMP_WORDBREAKS), and wants what follows the last of
them. Source:
https://www.gnu.org/software/bash/manual/bash.html, COMP_WORDBREAKS and COMP_LINE.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from click import shell_completion
from click.shell_completion import BashComplete, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

get_completion_class = shell_completion.get_completion_class
shell_complete = shell_completion.shell_complete
"""Those of click, which know the class below."""

BREAKS = "=:@"
SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' answer line kind value
    answer=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    for line in $answer; do
        IFS=',' read -r kind value <<< "$line"
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                if [[ $value == *[=:] ]]; then compopt -o nospace; fi ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""What the function sends is the line up to the cursor; what comes back, a kind and a word each."""


class Bash(BashComplete):
    """Given the whole line, answers with what follows the last break."""

    source_template = SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that one."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        typed = "" if not words or line[-1:].isspace() else words.pop()
        self.typed = typed
        return words[1:], typed

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Kind and word, cut where bash has cut it."""
        cut = 1 + max(self.typed.rfind(mark) for mark in BREAKS)
        return f"{item.type},{item.value[cut:]}"


add_completion_class(Bash)
