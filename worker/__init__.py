"""The worker: leases accounts, pulls chunks, polls the upstream, writes results, acknowledges."""
