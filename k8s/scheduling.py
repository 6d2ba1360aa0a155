"""What the scheduler's words say about waiting for a node: others hold what is wanted, or no node has it at all.

Both read "Insufficient nvidia.com/gpu". The difference is in what follows: of a node that would do if somebody left, the scheduler says
that it found nobody to preempt; of one that never will, that preemption is not helpful. (Schedulers before 1.32 say the former of both:
then the longer wait applies.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# A pod that fits nowhere has been told so from its first look on. One that is told so later waited behind others first, and some node is
# out of order: that may pass. This is how long after the budget a verdict may come and still be on the first kind.
LATE_S = 60.0
_SCALING = ("TriggeredScaleUp", "Nominated")  # of the cluster autoscaler, of Karpenter: a node is on its way
_NODES = re.compile(r"^0/(\d+) nodes are available")
_HOPELESS = re.compile(r"(\d+) Preemption is not helpful for scheduling")
_NO_CLAIM = re.compile(r'persistentvolumeclaim "[^"]+" not found', re.IGNORECASE)
_TAINT = re.compile(r"untolerated taint(?:\(s\)| \{(?P<taint>[^}]*)\})")


def fits_nowhere(words: str, reasons: Iterable[str]) -> bool:
    """``reasons``: of the pod's events. A node that is merely closed for now (cordoned) is no reason."""
    if _NO_CLAIM.search(words):
        return True
    nodes, hopeless = _NODES.search(words), _HOPELESS.search(words)
    return (
        nodes is not None
        and hopeless is not None
        and nodes[1] == hopeless[1]
        and "were unschedulable" not in words
        and not any(reason in _SCALING for reason in reasons)
    )


def advice(words: str, *, nowhere: bool) -> str:
    """What to do about it. Newer schedulers keep to themselves which taint it is."""
    if "persistentvolumeclaim" in words.lower():
        return "create that claim, correct its name, or see why it is not bound: kubectl describe pvc"
    if taint := _TAINT.search(words):
        which = f"the taint {taint['taint'].strip().rstrip(':')}" if taint["taint"] else "one of their taints"
        return (
            f"no toleration for {which} is given: add it to the tolerations, or choose other nodes; "
            "compare with: kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints"
        )
    if nowhere:
        return "no node offers what the pod asks for, free or not: compare with kubectl get nodes -L nvidia.com/gpu.product"
    return "compare with: kubectl get nodes -L nvidia.com/gpu.product, and with what runs there; or wait longer"
