"""Any server that has nothing but OpenAI chat completions. Its own template is applied, so prompt ids are unknown, and so are steps."""

from __future__ import annotations

from specsweep.orchestrator.engines._attach_only import AttachOnly

LAUNCHER = AttachOnly("openai_chat", frozenset({"none", "ngram", "draft_model", "eagle3", "mtp", "suffix"}), ())
