"""Terminal front end: the only package that reads argv, files and the clock, and that prints."""
