"""Charts without a library: inline SVG for pages, bars of characters for terminals. Knows numbers and labels alone."""
