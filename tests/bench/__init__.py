"""Benchmarks of specsweep itself: ``python -m bench``. A benchmark is a module ``bench_<name>.py`` with one function ``run``."""
