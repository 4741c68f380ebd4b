"""The tuner: what it prefers, that it works on copies alone, and that it is handed over only at the end of a round."""

import numpy as np

from dovetail.fragmentation.policy import ScoredPolicy
from dovetail.fragmentation.tuner import SelfTuned, Tuner, TunerSettings, candidates
from tests.core.fragmentation.builders import cluster, mix_of, put, share, whole


class Refuses:
    """Places nothing."""

    def choose(self, shape):
        return None


class First:
    """Any node, the first."""

    def score(self, columns, shape, *, rows):
        return np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64) if shape.is_share else None


MAKES = {"refuses": lambda columns, mix: Refuses(), "first": lambda columns, mix: ScoredPolicy(columns, scorer=First())}
EXPECTED = mix_of((whole(1), 1))


def tuner(**settings) -> Tuner:
    made = Tuner(MAKES, random=np.random.default_rng(1), settings=TunerSettings(**settings))
    for _ in range(10):
        made.observe(whole(1))
    return made


def test_the_candidate_that_places_more_is_preferred():
    one = tuner()
    assert one.best == "refuses"
    one.begin(cluster(4, 4), mix=EXPECTED)
    while one.step(arrivals=3):
        pass
    assert one.best == "first"


def test_nothing_is_preferred_before_the_round_is_over():
    one = tuner()
    one.begin(cluster(4, 4), mix=EXPECTED)
    assert one.step(arrivals=3)
    assert (one.best, one.running) == ("refuses", True)


def test_a_difference_below_the_margin_changes_nothing():
    one = tuner(margin_percent=100.0)
    one.begin(cluster(4, 4), mix=EXPECTED)
    while one.step():
        pass
    assert one.best == "refuses"


def test_the_cluster_itself_is_never_touched():
    columns = cluster(4, 4)
    put(columns, whole(2))
    one = tuner()
    one.begin(columns, mix=EXPECTED)
    while one.step():
        pass
    assert columns.changes == 1
    assert columns.left.sum() == 6000


def test_a_round_with_nothing_to_replay_ends_at_once():
    one = Tuner(MAKES, random=np.random.default_rng(1))
    one.begin(cluster(4), mix=EXPECTED)
    assert not one.step()
    assert one.best == "refuses"


def test_of_a_large_cluster_a_sample_is_replayed():
    one = tuner(most_nodes=2)
    one.begin(cluster(*[4] * 50), mix=EXPECTED)
    # Two nodes of four GPUs and 115 % asked: ten arrivals for each of two candidates.
    steps = 1
    while one.step(arrivals=1):
        steps += 1
    assert steps == 20


def test_fgd_and_several_settings_of_ph_are_candidates():
    assert next(iter(candidates())) == "ph"
    assert "fgd" in candidates()


def test_a_self_tuned_policy_places_while_it_replays():
    columns = cluster(4, 4)
    tuning = TunerSettings(first_round=2, arrivals_between_rounds=4)
    policy = SelfTuned(columns, random=np.random.default_rng(1), tuning=tuning, arrivals_per_choice=8)
    for _ in range(8):
        choice = policy.choose(share(500))
        assert choice is not None
        columns.place(choice)
    assert columns.idle_milli == 4000


def test_a_self_tuned_policy_takes_over_what_a_round_preferred():
    columns = cluster(4, 4)
    policy = SelfTuned(columns, random=np.random.default_rng(1), tuning=TunerSettings(first_round=2))
    policy._makes = policy._tuner._makes = {"ph": MAKES["refuses"], "first": MAKES["first"]}
    for _ in range(3):
        policy.choose(share(500))
    while policy.step():
        pass
    assert policy.used == "ph"
    choice = policy.choose(share(500))
    assert policy.used == "first"
    assert choice is not None
