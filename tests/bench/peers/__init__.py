"""Celery, arq and taskiq-nats on the work of `policies`; `make bench-peers`, in a virtual environment of its own."""
