"""Room costmodel/blocks/feed_forward."""
