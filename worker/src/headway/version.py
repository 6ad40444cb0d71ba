"""The package's version; the repository's own (scripts/tests/repository.sh)."""

__version__ = "0.1.0"
