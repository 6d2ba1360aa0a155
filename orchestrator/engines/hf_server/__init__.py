"""The server of the engine ``hf``: a transformers model, replicated by Ray Serve, behind vLLM's completions wire.

For what no serving engine has yet: a method from a paper is ported here as a drafter of some twenty lines and measured like any engine
(docs/porting.md). Every decoding step is ours and explicit, none is hidden in ``generate()``, so each event of the stream is one step.

    steps       what a method gives: one :class:`Step` after the other
    sampling    from logits to tokens; which drafts to keep (rejection sampling)
    chain       the loop: draft a chain, verify it in one forward pass, keep what the target would have written
    drafters    draft model, prompt lookup, Medusa heads
    loading     from settings to a method with its weights
    wire        requests and events, as vLLM writes them
    serve       the process: Ray Serve replicas, and HTTP before them

``chain``, ``drafters``, ``sampling`` and ``loading`` import torch, which only the environment of this engine has. The launcher imports none.
"""
