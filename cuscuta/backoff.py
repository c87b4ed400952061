"""How long to wait before the n-th try. Pure arithmetic; the caller sleeps."""


def semi_linear(n: int, base_s: float, cap_s: float, jitter: float) -> float:
    """Seconds of rest after the n-th throttling in a row: `min(cap, base * n)`, spread by up to a quarter.

    `jitter` is a number in [0, 1) that the caller draws.
    """
    return min(cap_s, base_s * max(1, n)) * (1 + 0.25 * jitter)


def exponential(n: int, base_s: float, cap_s: float, jitter: float) -> float:
    """Seconds before the n-th retry (n from 1): doubles up to the cap, spread over the upper half."""
    full = min(cap_s, base_s * 2.0 ** min(max(0, n - 1), 60))
    return full * (0.5 + 0.5 * jitter)
