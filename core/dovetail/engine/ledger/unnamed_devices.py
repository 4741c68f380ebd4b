"""Devices that kubelet picks: which slots stand in for the ones whose ids are unknown. Pure.

On such a node only the number of free devices matters, so until its report names the devices any slots will do. A
claim without ids takes free slots, and whatever counts slots stays correct.
"""

import numpy as np

from dovetail.engine.model.columns import Bools, Ints


def stand_ins(*, present: Bools, good: Bools, taken: Bools, count: int) -> Ints:
    """The numbers of up to `count` slots that are not `taken`, [n], good ones first: kubelet offers no others.

    `present`, `good` and `taken` are masks of the slots, [d].
    """
    free = np.flatnonzero(present & ~taken)
    return np.concatenate([free[good[free]], free[~good[free]]])[:count]


def withdrawn(*, good: Bools, taken: Bools, offered: int, promised: int) -> Ints:
    """The numbers of free good slots beyond what kubelet still offers, [n]. `good` and `taken` are masks, [d].

    Kubelet knows of a fault that the report does not show.
    kube-scheduler counts in the same way: what the node offers minus everything that is promised there.
    """
    free = np.flatnonzero(good & ~taken)
    return free[max(0, offered - promised) :]
