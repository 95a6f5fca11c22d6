"""Preloaded by the workers on this machine: the study handles Ctrl-C, and ends the workers and
their commands.
"""

import signal


def dask_setup(_worker: object) -> None:
    """Ignores Ctrl-C, which a terminal sends to every process of the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
