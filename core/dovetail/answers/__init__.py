"""Answers: for each question one type, one function, and one text. Its JSON is that of REST v3 and of `-o json`. Pure.

Here: nodes and devices. `cluster.availability` decides whether a device takes work; nothing here decides it again.
"""

import msgspec

from dovetail.api.meta import wire_name


class Row(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The common shape of answers: every field is there, null where it is not known."""
