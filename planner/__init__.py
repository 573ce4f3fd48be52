"""Searches the layouts the cost model can price, and proves its answer."""
