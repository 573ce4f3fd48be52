"""Options that commands share and how their values are read, light enough for a help page."""
