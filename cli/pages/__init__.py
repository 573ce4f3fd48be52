"""Answers as text and JSON, one file a kind of answer; `parts` has what several share."""
