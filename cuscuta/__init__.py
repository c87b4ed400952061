"""The kernel that entry, worker and reaper share: values, process furniture, broker and database."""

from importlib.metadata import version

__version__ = version("cuscuta")
