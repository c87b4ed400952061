"""The routes, one resource a file."""
