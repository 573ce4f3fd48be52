"""The module for PyTorch FSDP2 that is written whole."""
