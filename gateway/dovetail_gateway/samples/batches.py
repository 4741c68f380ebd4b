"""What one sample adds to the database, and the error of a database that cannot be used.

Loaded without a database too: `store`, which has one, is loaded for a `samples_url` alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dovetail_gateway.samples.curves import Curve
from dovetail_gateway.samples.marks import Mark
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import Row
from dovetail_gateway.samples.usage import Account, Used

Kind = Literal["device", "namespace", "project"]


class SamplesError(Exception):
    """The database cannot be used. The message names it without its password."""

    def __init__(self, where: str, *, problem: str) -> None:
        super().__init__(f"samples {where}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCurve:
    """The curve of a job, until when it reaches, and whose it is."""

    uid: str
    namespace: str
    name: str
    until: int
    data: bytes

    @property
    def curve(self) -> Curve:
        """The curve itself. Raises `ValueError` for bytes that are none."""
        return Curve.decode(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one sample adds to the database."""

    rows: Mapping[Kind, Sequence[Row]] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    curves: Sequence[KeptCurve] = ()
    marks: Sequence[Mark] = ()
    usage: Mapping[Account, Used] = field(default_factory=dict)
