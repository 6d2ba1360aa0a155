"""A simulated engine: a batching LLM server whose truth is known, for tests, demonstrations and dry runs without a GPU.

The core is pure. :mod:`.acceptance` says how many draft tokens are taken, :mod:`.roofline` how long a step lasts, :mod:`.model` reads
both from a small YAML, and :mod:`.engine` batches requests in lockstep steps over them. Nothing there reads a clock or a socket, so the
same engine runs in virtual time under the tests of the statistics and in real time behind a server that speaks an engine's wire.

What comes out of it is a consequence of the numbers that went in. It can show that a measurement is right; it can show nothing about a
GPU.
"""
