"""`python -m outrider.cli`, where the entry point is not installed."""

from outrider.cli.main import main

if __name__ == "__main__":
    main()
