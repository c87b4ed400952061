"""`python -m worker.upstream FILE`: check an adapter without starting anything; exit code 2 with every fault."""

import sys

from worker.upstream.loader import AdapterError, load
from worker.upstream.schema import AdapterFileError


def main() -> None:
    """Check the adapter that the argument names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m worker.upstream FILE.toml | module:Class | name")
    try:
        adapter = load(sys.argv[1])
    except (AdapterError, AdapterFileError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(f"{adapter.name} is in order")


if __name__ == "__main__":
    main()
