"""Checks someone's launch: what it costs, which settings cost it time, which edits help."""
