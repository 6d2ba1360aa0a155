"""vLLM: attached to where it runs; its OpenAI completions wire with token ids (``return_token_ids``)."""

from __future__ import annotations

from specsweep.orchestrator.engines._attach_only import AttachOnly

LAUNCHER = AttachOnly("vllm", frozenset({"none", "ngram", "draft_model", "eagle3", "mtp", "suffix"}), ("/version",))
