"""Pure arithmetic of a training step: bytes and seconds of every candidate layout."""
