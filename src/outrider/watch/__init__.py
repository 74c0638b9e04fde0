"""`outrider watch`: plays a trace as a page in the browser, or in the terminal."""
