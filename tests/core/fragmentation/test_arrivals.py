"""The learned mix: counts with decay, the prior, and when a policy is made anew."""

import pytest

from dovetail.fragmentation.arrivals import LearnedMix, Learner, LearningSettings, Online, drift
from dovetail.fragmentation.priced_headroom import PH, ph_online
from tests.core.fragmentation.builders import cluster, mix_of, share, whole

NO_PRIOR = LearningSettings(prior_probability=0.0, covered_percent=100)


def learned(*arrivals, settings: LearningSettings = NO_PRIOR) -> dict:
    learner = Learner(cluster(4), settings=settings)
    for shape, count in arrivals:
        for _ in range(count):
            learner.observe(shape)
    found = learner.mix()
    return dict(zip(found.classes, found.probability.tolist(), strict=True))


def test_frequent_arrivals_weigh_more():
    found = learned((whole(1), 3), (share(500), 1))
    assert found[whole(1)] == pytest.approx(0.75, abs=0.001)


def test_an_arrival_counts_half_after_its_half_life():
    settings = LearningSettings(half_life_arrivals=100, prior_probability=0.0, covered_percent=100)
    found = learned((whole(1), 1), (share(500), 99), (whole(2), 1), settings=settings)
    assert found[whole(1)] / found[whole(2)] == pytest.approx(0.5, rel=0.01)


def test_weights_stay_finite_over_many_half_lives():
    settings = LearningSettings(half_life_arrivals=2, prior_probability=0.0)
    assert learned((whole(1), 500), (share(500), 500), settings=settings)[share(500)] == pytest.approx(1, abs=1e-6)


def test_weights_stay_finite_over_more_half_lives_than_a_number_can_hold():
    settings = LearningSettings(half_life_arrivals=1, prior_probability=0.0)
    assert learned((whole(1), 1000), (share(500), 1100), settings=settings) == {share(500): 1.0}


@pytest.mark.parametrize(("first_look", "moved_at"), [(1, 1), (4, 4)])
def test_the_first_look_comes_with_the_arrival_that_it_is_set_to(first_look, moved_at):
    columns = cluster(8)
    found = LearnedMix(columns, learning=LearningSettings(first_look=first_look))
    assert [found.observe(share(500), columns=columns) for _ in range(5)].index(True) == moved_at - 1


def test_looks_become_rarer_as_arrivals_add_up():
    """At 2, then three times as many each, and no more than 20 later: what is new is seen at the next one."""
    columns = cluster(8)
    found = LearnedMix(
        columns,
        learning=LearningSettings(
            first_look=2, looks_factor=3, longest_between_looks=20, half_life_arrivals=1, prior_probability=0.0
        ),
    )
    shapes = (share(500), whole(1))
    moved = [at + 1 for at in range(70) if found.observe(shapes[len(moved_before(at)) % 2], columns=columns)]
    assert moved == [2, 6, 18, 38, 58]


def moved_before(at):
    """The looks that lie before an arrival: after each of them another shape comes."""
    return [look for look in (2, 6, 18, 38, 58) if look <= at]


def test_rare_shapes_are_left_out_unless_they_take_several_devices():
    found = learned((whole(1), 997), (share(123), 2), (whole(2), 1), settings=LearningSettings(prior_probability=0.0))
    assert share(123) not in found
    assert whole(2) in found


def test_each_shape_of_node_is_expected_whole_before_anyone_asked():
    columns = cluster(4, 4, 8, cpu_milli=10_000, memory_mib=1000)
    found = Learner(columns).mix()
    assert found.classes == (
        whole(4, cpu_milli=9400, memory_mib=940),
        whole(8, cpu_milli=9400, memory_mib=940),
    )


def test_drift_is_half_of_what_probabilities_differ():
    old = mix_of((whole(1), 3), (whole(2), 1))
    assert drift(old, new=old) == 0
    assert drift(old, new=mix_of((whole(1), 1), (whole(2), 3))) == 0.5
    assert drift(old, new=mix_of((whole(4), 7))) == 1


def test_a_policy_is_made_anew_only_when_the_mix_has_moved():
    columns, made = cluster(8), []

    def make(columns, mix):
        made.append(mix)
        return PH(columns, mix=mix)

    online = Online(columns, make=make, learning=LearningSettings(first_look=4, looks_factor=2))
    for _ in range(64):
        online.choose(share(1))
    # The prior alone, then the first look; the looks at 8, 16, 32 and 64 find the same.
    assert len(made) == 2
    for _ in range(64):
        online.choose(whole(1))
    assert len(made) == 3


def test_what_is_learned_decides_where_pods_go():
    columns = cluster(2, 4)
    online = ph_online(columns)
    for _ in range(64):
        online.choose(whole(4))
    choice = online.choose(whole(2))
    assert choice is not None
    assert choice.node == 0


def test_of_too_many_classes_those_that_ask_for_the_most_devices_stay():
    settings = LearningSettings(prior_probability=0.0, covered_percent=100, most_classes=2)
    found = learned((whole(1), 5), (share(500), 4), (whole(8), 1), settings=settings)
    assert set(found) == {whole(8), whole(1)}


def test_of_too_many_shapes_the_frequent_ones_are_remembered():
    settings = LearningSettings(prior_probability=0.0, covered_percent=100, most_shapes=6)
    found = learned((whole(1), 9), *[(share(milli), 1) for milli in range(100, 1000, 50)], settings=settings)
    assert whole(1) in found
    assert len(found) <= 6
