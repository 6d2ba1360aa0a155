"""Which prompts are sent: committed and user corpora, ISL buckets in o200k_base tokens, the target's own template and tokenizer."""

from __future__ import annotations

from specsweep.client.workload.errors import NotPreparedError, WorkloadError
from specsweep.client.workload.prompts import Prompt, PromptSet, check_prompts, load_prompts, shortest_text, task_names, workload_hash
from specsweep.client.workload.tokenizer import TargetTokenizer, load_tokenizer

__all__ = [
    "NotPreparedError",
    "Prompt",
    "PromptSet",
    "TargetTokenizer",
    "WorkloadError",
    "check_prompts",
    "load_prompts",
    "load_tokenizer",
    "shortest_text",
    "task_names",
    "workload_hash",
]
