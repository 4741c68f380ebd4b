"""Kinds: equal nodes share a number, and numbers never run out."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.fragmentation.capacity import Kinds

STATES = st.tuples(st.integers(0, 2), st.integers(0, 2))


@given(st.lists(STATES, min_size=1, max_size=6), st.lists(st.tuples(st.integers(0, 99), STATES), max_size=30))
def test_equal_nodes_share_a_number_after_any_moves(states, moves):
    kinds = Kinds(states)
    for pick, state in moves:
        states[pick % len(states)] = state
        kinds.move(pick % len(states), state=state)
        numbers = kinds.of.tolist()
        assert len(set(zip(states, numbers, strict=True))) == len(set(states)) == len(set(numbers))
        assert max(numbers) < len(states)


def test_a_copy_goes_its_own_way():
    kinds = Kinds([(1,), (1,)])
    other = kinds.copy()
    other.move(0, state=(2,))
    assert len(set(kinds.of.tolist())) == 1
    assert len(set(other.of.tolist())) == 2
    kinds.move(1, state=(3,))
    assert len(set(other.of.tolist())) == 2
