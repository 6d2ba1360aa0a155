"""Our client beside those that others measure with, on one simulated server whose truth is known.

Each client runs in an environment of its own, as its users start it, with the same prompts and output caps in the same order and the same
number in flight. What it says is compared with the server's truth log, and what it costs with ``/proc``. One small module a client
says how it is started and how its result files are read; those readers are pure, so that saved results prove them.
"""
