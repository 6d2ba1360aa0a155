"""Knows Kubernetes and nothing else: manifests from plain specs, watching pods to a verdict, evidence, clean-up.

It could start any GPU server: neither engines nor sweeps are known here. From the inside out:

* what is wanted, pure: :mod:`specs` → :mod:`manifests` (with :mod:`podspec`, :mod:`merge`, :mod:`names`, :mod:`quantities`);
* what is seen, pure: :mod:`pods` → :mod:`verdict` and :mod:`ends` → :mod:`outcomes`; :mod:`redaction` of all that is kept;
* the API server: :mod:`config` → :mod:`transport` (:mod:`resources`, :mod:`answers`) → :mod:`api` → :mod:`watch`;
* put together: :mod:`fleet` (all objects of one sweep), :mod:`watched` (one Job and its pod), :mod:`server` (one that serves),
  :mod:`jobs` (those that end), :mod:`evidence`, and for those who ask before they start :mod:`rights` and :mod:`survey`.

API objects are plain dicts, as the API gives and takes them: a client's model classes would drop fields that they do not know
yet, and every test can show the JSON that a real cluster sent.
"""
