"""The fixtures of the command line serve here too: a node is started as a user starts it."""

from tests.cli.conftest import run

__all__ = ["run"]
