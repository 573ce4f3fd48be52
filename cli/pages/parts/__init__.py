"""Parts of a page: grids, bars, headlines, words for layouts and terms."""
