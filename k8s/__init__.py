"""Knows Kubernetes and nothing else: manifests from plain specs, watching pods to a verdict, evidence, clean-up. Empty so far."""
