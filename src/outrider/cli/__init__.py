"""The command line. main.py finds the commands: one file each, with a function `register(app)`."""
