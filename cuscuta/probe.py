"""`python -m cuscuta.probe`: whether the service beside it is live, for a container's health check.

Asks `/livez` on the ports that the settings name, entry's and then the health server's: in a container one of the two
listens. Exits 0 if it says that it is live, 1 with a line on stderr if not. Imports nothing but the standard library,
so that a check every few seconds costs little.
"""

import os
import sys
import urllib.error
import urllib.request

LIMIT_S = 4.0
PORTS = ("CUSCUTA_ENTRY_PORT", "CUSCUTA_HEALTH_PORT")


def main() -> int:
    """The exit code."""
    causes = []
    for name in PORTS:
        port = os.environ.get(name, "")
        if not port.isdecimal():
            causes.append(f"{name} is not set")
            continue
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=LIMIT_S):
                return 0
        except urllib.error.HTTPError as error:
            causes.append(f"port {port}: {error.code} {error.read(500).decode(errors='replace')}")
        except OSError as error:
            causes.append(f"port {port}: {error}")
    print("not live: " + "; ".join(causes), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
