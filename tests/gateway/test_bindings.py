"""In which namespaces RoleBindings name a user, beside a look at all of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.builtin import RoleBinding
from dovetail.decoding import decode
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.cluster.bindings import Bindings

NAMESPACES: Final = ("red", "blue")
ACCOUNT: Final = "system:serviceaccount:{}:ann"
SUBJECTS: Final[Sequence[Mapping[str, str]]] = (
    {"kind": "User", "name": "ann"},
    {"kind": "Group", "name": "ann"},
    {"kind": "Group", "name": "staff"},
    {"kind": "Group", "name": "system:authenticated"},
    {"kind": "ServiceAccount", "name": "ann"},
    {"kind": "ServiceAccount", "name": "ann", "namespace": "blue"},
)
IDENTITIES: Final = (
    Identity(username="ann"),
    Identity(username="ann", groups=("staff", "system:authenticated")),
    Identity(username="bob", groups=("ann",)),
    Identity(username=ACCOUNT.format("red"), groups=("system:serviceaccounts",)),
    Identity(username=ACCOUNT.format("blue")),
)
# What happens to a RoleBinding of a namespace: its subjects from now on, None if it is deleted.
EVENTS: Final = st.lists(
    st.tuples(
        st.sampled_from(NAMESPACES),
        st.sampled_from(["one", "two"]),
        st.none() | st.lists(st.sampled_from(SUBJECTS), max_size=3),
    ),
    max_size=8,
)


def names(subject: Mapping[str, str], *, who: Identity, namespace: str) -> bool:
    """Whether a subject of a RoleBinding in the namespace says something of this user alone."""
    match subject["kind"]:
        case "User":
            return who.username == subject["name"]
        case "Group":
            return subject["name"] in who.groups and not subject["name"].startswith("system:")
        case _:
            return who.username == ACCOUNT.format(subject.get("namespace", namespace))


@given(events=EVENTS)
@settings(max_examples=100)
def test_a_user_is_named_where_a_role_binding_says_so_and_each_change_is_told(events: list[Any]) -> None:
    changed = list[str]()
    bindings, there = Bindings(changed=changed.append), dict[tuple[str, str], list[Mapping[str, str]]]()
    for namespace, name, subjects in events:
        key = (namespace, name)
        if subjects is None and key not in there:
            continue
        event: Any = "DELETED" if subjects is None else "MODIFIED" if key in there else "ADDED"
        found = {"metadata": {"name": name, "namespace": namespace}, "subjects": subjects or there.get(key)}
        bindings.on_binding(event, decode(json.dumps(found), as_type=RoleBinding))
        assert changed.pop() == namespace, "a denial there may be an old one, also where another role is bound"
        if subjects is None:
            del there[key]
        else:
            there[key] = subjects or there.get(key) or []
        for who in IDENTITIES:
            own = {who.username.split(":")[2]} if who.username.startswith("system:") else set()
            wanted = {
                where for (where, _), its in there.items() if any(names(each, who=who, namespace=where) for each in its)
            }
            assert sorted(bindings.namespaces_of(who)) == sorted(own | wanted)
    for namespace, name in there:
        gone = {"metadata": {"name": name, "namespace": namespace}}
        bindings.on_binding("DELETED", decode(json.dumps(gone), as_type=RoleBinding))
    assert (bindings._subjects, dict(bindings._namespaces)) == ({}, {})
