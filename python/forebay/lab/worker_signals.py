"""Loaded by the workers of this machine: Ctrl-C is for the study, which then ends what they run, and them."""

import signal


def dask_setup(_worker: object) -> None:
    """Ignores Ctrl-C, which a terminal sends to every process of the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
