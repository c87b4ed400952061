"""The command line: a client of the REST API, and `up` and `demo`, which run everything on one box."""
