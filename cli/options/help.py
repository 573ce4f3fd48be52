"""Text of help pages."""


def example(*lines: str) -> str:
    """The end of a help page: a command to copy."""
    return "\b\n" + "\n".join(("Example:", *(f"  {line}" for line in lines)))
