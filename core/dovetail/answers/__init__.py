"""Answers: for each question one type, one function, and one text. Its JSON is that of REST v3 and of `-o json`. Pure.

`nodes` and `inventory` have nodes and devices, `jobs` jobs, `explain` why a job waits; `v1` and `v2` the answers of the
older versions of REST.
`cluster.availability` decides whether a device takes work; nothing here decides it again.
"""

from typing import Any

import msgspec

from dovetail.answers.notebook import view
from dovetail.api.meta import wire_name


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A value whose fields are attributes and keys: `job.started_at` and `job["started_at"]`.

    A notebook shows it as a table.
    """

    def __getitem__(self, field: str) -> Any:
        """The field by its name. Raises `KeyError`."""
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def _repr_html_(self) -> str:
        fields = msgspec.structs.asdict(self)
        return view(type(self).__name__, rows=((name, str(value)) for name, value in fields.items()))


class Row(Record, frozen=True, kw_only=True, rename=wire_name):
    """The common shape of answers: every field is there, null where it is not known; camelCase on the wire."""
