"""Which jobs a guarantee covers, and which it can spare."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.queue.quota_tree.resources import MEMORY
from tests.core.queue.quota_tree.builders import make_loans, make_quota


def test_a_job_that_ended_never_takes_it_back_where_nothing_is_guaranteed() -> None:
    """Departments whose only project guarantees no memory: neither covers a job, and neither is a false owner."""
    quotas = (
        make_quota("left", parents_only=True),
        make_quota("right", parents_only=True),
        make_quota("l", parent="left", memory="0"),
        make_quota("r", parent="right", memory="0"),
    )
    loans = make_loans(*quotas, gpus=8, running={"x": ("r", 8)}, waiting={"y": ("l", 8)})
    assert loans.tree.nodes[loans.tree.by_name["left"]].guaranteed == (None, 0)
    assert loans.tree.resources[1] == MEMORY
    assert loans.owner("y") is None


def test_memory_alone_does_not_cover_a_job_without_memory() -> None:
    loans = make_loans(
        make_quota("vision", memory="160Gi"), gpus=8, running={}, waiting={"x": ("vision", 1)}, gib={"x": 0}
    )
    assert loans.owner("x") is None


# --- a guarantee of models alone ----------------------------------------------------------------------------------

OF_MODELS = (make_quota("a", models={"A100": 4}), make_quota("c", guaranteed=4))


def test_borrowed_gpus_of_another_model_cost_no_guaranteed_ones() -> None:
    loans = make_loans(
        *OF_MODELS,
        gpus=16,
        running={"h": ("a", 4), "x": ("b", 4)},
        waiting={"mine": ("a", 4), "other": ("a", 1), "any": ("a", 1)},
        models={"h": "H100", "x": "A100", "mine": "A100", "other": "H100"},
    )
    a, c = loans.tree.by_name["a"], loans.tree.by_name["c"]
    assert (loans.owner("mine"), loans.owner("other"), loans.owner("any")) == (a, None, None)
    assert loans.gives_back("x", to="mine", owner=a)
    assert (loans.borrows(a), loans.borrowed_milli(a), loans.borrows(c)) == (True, 4000, False)


def test_gpus_of_another_model_keep_no_guarantee() -> None:
    """The job on the guaranteed model stays, whatever else its quota uses; the other one is borrowed."""
    loans = make_loans(
        *OF_MODELS,
        gpus=16,
        running={"kept": ("a", 4), "borrowed": ("a", 4)},
        waiting={"y": ("c", 4)},
        models={"kept": "A100", "borrowed": "H100"},
    )
    c = loans.tree.by_name["c"]
    assert not loans.gives_back("kept", to="y", owner=c)
    assert loans.gives_back("borrowed", to="y", owner=c)


def test_a_job_that_may_not_be_preempted_is_within_a_guarantee_of_its_model_alone() -> None:
    waiting = {"named": ("a", 4), "other": ("a", 1)}
    loans = make_loans(
        *OF_MODELS, gpus=8, running={}, waiting=waiting, models={"named": "A100", "other": "H100"}, firm=waiting
    )
    assert (loans.firm_room("named"), loans.firm_room("other")) == ((None, 4000), (0, 0))


def test_the_gpus_that_models_imply_are_shown() -> None:
    loans = make_loans(*OF_MODELS, gpus=16, running={}, waiting={"x": ("a", 4)}, models={"x": "A100"})
    node = loans.tree.nodes[loans.tree.by_name["a"]]
    assert (node.guaranteed, node.bounds) == ((4000, 4000), (None, 4000))


def test_beyond_any_amount_that_it_names_a_quota_borrows() -> None:
    loans = make_loans(
        make_quota("vision", guaranteed=8, memory="160Gi"), gpus=8, running={"x": ("vision", 4)}, waiting={}
    )
    assert loans.borrowed_milli(0) == 2000


# --- who may end for a reserve ------------------------------------------------------------------------------------

PLACES = ("vision", "speech", "search", "guest")
WITHIN, LATE = 60.0, 600.0
RUNNING = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from([0.5, 1, 2]), st.sampled_from([None, 30.0, LATE]))
)


@settings(max_examples=200, deadline=None)
@given(st.tuples(*[st.integers(0, 3)] * 3), st.none() | st.integers(0, 6), RUNNING)
def test_those_that_end_together_for_a_reserve_leave_each_quota_its_guarantee(
    amounts: tuple[int, ...], research: int | None, running: list[tuple[str, float, float | None]]
) -> None:
    quotas = (
        make_quota("chat", guaranteed=2),
        make_quota("research", guaranteed=research, parents_only=True),
        make_quota("vision", parent="research", guaranteed=amounts[0]),
        make_quota("speech", parent="research", guaranteed=amounts[1]),
        make_quota("search", guaranteed=amounts[2]),
    )
    jobs = {f"job-{at}": (place, gpus) for at, (place, gpus, _) in enumerate(running)}
    firm = {f"job-{at}" for at, each in enumerate(running) if each[2] is None}
    loans = make_loans(*quotas, gpus=16, running=jobs, waiting={}, firm=firm)
    leave = {f"job-{at}": each[2] for at, each in enumerate(running)}
    loans._charges = {key: replace(each, leave_seconds=leave[key]) for key, each in loans.charges.items()}
    guaranteed = {quota: loans.tree.nodes[at].bounds[0] for quota, at in loans.tree.by_name.items()}

    def spares(gone: set[str]) -> bool:
        """Whether each quota that loses a job keeps its guarantee."""
        left: dict[str, float] = dict.fromkeys(guaranteed, 0.0)
        loses = set[str]()
        for key, (place, gpus) in jobs.items():
            for quota in (place, *(["research"] if place in {"vision", "speech"} else [])):
                if quota in left and key in gone:
                    loses.add(quota)
                elif quota in left:
                    left[quota] += gpus * 1000
        return all(left[quota] >= (guaranteed[quota] or 0) for quota in loses)

    found = set(loans.borrowers_for(loans.tree.by_name["chat"], within_seconds=WITHIN))
    assert found <= {key for key, seconds in leave.items() if seconds is not None and seconds <= WITHIN}
    assert spares(found)
    for key in leave.keys() - found:
        assert leave[key] in {None, LATE} or not spares(found | {key}), f"{key} may end too"
