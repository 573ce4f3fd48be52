"""Room costmodel/traffic."""
