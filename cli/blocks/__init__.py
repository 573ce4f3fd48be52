"""What an answer shows, as frozen values, and its two drawers: a terminal and a page of HTML."""
