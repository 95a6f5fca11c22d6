"""Studies: many cells of traces and configurations, on this machine or on a Dask cluster.

A *cell* is one run of the command: a trace, a target (``simulate``, ``mrc``, ``plan``, ``replay``,
``load``), a configuration and a seed. A study file lists what to combine (:mod:`~forebay.lab.spec`),
:mod:`~forebay.lab.cells` names each cell by a hash of everything that its answer depends on,
:mod:`~forebay.lab.cluster` runs cells on workers, and :mod:`~forebay.lab.journal` keeps each answer
as it arrives. Two invariants always hold: only the process of the study writes the journal, and an answer
counts once, under the name of its cell. A worker may therefore die, and the study may be stopped, at any time.
"""
