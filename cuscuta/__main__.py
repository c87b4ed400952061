"""`python -m cuscuta` is the `cuscuta` command."""

from cuscuta.cli.main import main

if __name__ == "__main__":
    main()
