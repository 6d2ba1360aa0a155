"""Benchmarks of specsweep itself: ``make bench``. A benchmark is a module ``bench_<name>.py`` with one function ``run``."""
