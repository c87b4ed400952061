"""What children that are none of ours are told."""

import os


def plain_env() -> dict[str, str]:
    """The environment for a server that is none of ours: without our settings, which hold secrets."""
    return {key: value for key, value in os.environ.items() if not key.startswith("CUSCUTA_")}
