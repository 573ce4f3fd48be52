"""Reports: one HTML file that works offline, with charts; the page, its blocks, and one file a document."""
