"""The reaper: returns expired leases, mends what got lost, removes what is old. Several replicas, one active."""
