"""Where kubelet picks the devices: which slots stand for those that nobody has named yet. Pure.

What counts on such a node is how many are free, and until its report names them any will do. So a claim without names
takes free slots for the time being, and everything that counts slots counts right.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def stand_ins(*, present: Bools, good: Bools, taken: Bools, count: int) -> Ints:
    """Up to `count` slots that are not `taken`: good ones first, as kubelet gives out no others."""
    free = np.flatnonzero(present & ~taken)
    return np.concatenate([free[good[free]], free[~good[free]]])[:count]


def withdrawn(*, good: Bools, taken: Bools, offered: int, promised: int) -> Ints:
    """Free good slots beyond what kubelet still has to give: it knows of a fault that the report does not show.

    kube-scheduler reckons likewise: what is `offered` less all that is `promised`, wherever that stands.
    """
    free = np.flatnonzero(good & ~taken)
    return free[max(0, offered - promised) :]
