"""Room cli/terminal."""
