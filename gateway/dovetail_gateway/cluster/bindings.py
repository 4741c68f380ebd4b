"""In which namespaces a user may have rights, by RoleBindings.

This orders the questions to the API server, and answers none of them: roles and other authorizers are unknown here.

A module of its own: an index of RoleBindings, to which `cache` only passes the events.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from dovetail.api.builtin import BindingSubject, RoleBinding
from dovetail.api.meta import EventType, key_of
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.limits import ACCOUNT, namespace_of

# What a RoleBinding gives to all users or programs says nothing of one of them.
_EVERYONE: Final = frozenset({"system:authenticated", "system:serviceaccounts"})
# A subject as an index key: its kind, and the name that the API server gives the user or group.
_Subject = tuple[str, str]


class Bindings:
    """The namespaces of each subject's RoleBindings. `changed` gets the namespace of each that changes."""

    def __init__(self, *, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._subjects: dict[str, frozenset[_Subject]] = {}
        # How many RoleBindings of a namespace name the subject.
        self._namespaces: defaultdict[_Subject, Counter[str]] = defaultdict(Counter)

    def on_binding(self, event: EventType, binding: RoleBinding) -> None:
        """Take in a change of a RoleBinding."""
        key, namespace = key_of(binding.metadata), binding.metadata.namespace
        found = () if event == "DELETED" else binding.subjects or ()
        now = frozenset(_subject(each, namespace=namespace) for each in found)
        before = self._subjects.pop(key, frozenset())
        for subject in before:
            self._remove(subject, namespace=namespace)
        for subject in now:
            self._namespaces[subject][namespace] += 1
        if now:
            self._subjects[key] = now
        self._changed(namespace)

    def namespaces_of(self, identity: Identity) -> Sequence[str]:
        """The namespaces in which a RoleBinding names the user, or a group of the user that not everyone is in."""
        own = namespace_of(identity.username)
        found = [() if own is None else (own,), self._namespaces.get(("User", identity.username), ())]
        found += [self._namespaces.get(("Group", name), ()) for name in identity.groups if name not in _EVERYONE]
        return list(dict.fromkeys(name for names in found for name in names))

    def _remove(self, subject: _Subject, *, namespace: str) -> None:
        own = self._namespaces[subject]
        own[namespace] -= 1
        if not own[namespace]:
            del own[namespace]
        if not own:
            del self._namespaces[subject]


def _subject(subject: BindingSubject, *, namespace: str) -> _Subject:
    if subject.kind == "ServiceAccount":
        return "User", f"{ACCOUNT}{subject.namespace or namespace}:{subject.name}"
    return subject.kind, subject.name
