"""The one error of prompts and tokenizers. Leaf layer: it cannot know the orchestrator's tree, which maps it to a configuration error."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A workload, prompt file or tokenizer that cannot be used; the message names the field or file and what to do."""


class NotPreparedError(WorkloadError):
    """The texts are those of a data set that this machine does not have yet; the message names the command that makes it."""
