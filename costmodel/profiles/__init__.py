"""The document of a measured machine: its points and the constants fitted through them."""
