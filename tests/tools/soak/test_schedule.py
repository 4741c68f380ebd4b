"""Which disturbance comes when."""

from itertools import pairwise

from tools.soak.schedule import CLIENTS, KILLS_UNTIL, PROGRAMS, plan


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    def times(seed: int) -> object:
        return plan(total_seconds=3600, every_seconds=30, seed=seed)

    assert times(1) == times(1) != times(2)


def test_one_disturbance_ends_before_the_next_begins_and_none_begins_at_the_end() -> None:
    made = plan(total_seconds=7200, every_seconds=40, seed=3)
    assert len(made) > 50
    for one, other in pairwise(made):
        assert one.at + one.seconds < other.at
    assert made[-1].at < 0.9 * 7200


def test_kills_end_with_the_first_quarter_and_every_other_kind_comes_after_it() -> None:
    made = [each for seed in range(5) for each in plan(total_seconds=7200, every_seconds=30, seed=seed)]
    assert max(each.at for each in made if each.kind == "kill") < KILLS_UNTIL * 7200
    later = {each.kind for each in made if each.at > KILLS_UNTIL * 7200}
    assert later == {"pause", "delay", "drop", "stall", "api-server", "clock", "certificate"}


def test_only_programs_are_killed_and_only_clients_are_cut_off() -> None:
    for each in plan(total_seconds=7200, every_seconds=10, seed=4):
        if each.kind in {"kill", "pause"}:
            assert each.target in PROGRAMS
        elif each.kind in {"delay", "drop", "stall"}:
            assert each.target in CLIENTS
        else:
            assert each.target == ""
        assert (each.step != 0) == (each.kind == "clock")


def test_what_is_left_out_does_not_come() -> None:
    made = plan(total_seconds=7200, every_seconds=10, seed=4, leave_out=("clock",))
    assert "clock" not in {each.kind for each in made}
