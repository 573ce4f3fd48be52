"""Someone's launch judged: does it run, what does it cost, and which few edits make it faster."""
