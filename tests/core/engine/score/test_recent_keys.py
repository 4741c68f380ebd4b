from dovetail.engine.score.live_fragmentation import RecentKeys


def test_a_key_is_new_once() -> None:
    recent = RecentKeys(4)
    assert [recent.add(key) for key in ("a", "b", "a", "b")] == [True, True, False, False]


def test_the_latest_keys_are_known_and_the_oldest_are_forgotten() -> None:
    recent = RecentKeys(4)
    added = [f"key-{number}" for number in range(20)]
    for key in added:
        recent.add(key)
    assert not any(recent.add(key) for key in added[-4:])
    assert recent.add(added[0])


def test_a_key_that_comes_again_stays_known() -> None:
    recent = RecentKeys(4)
    recent.add("waits")
    for number in range(20):
        recent.add(f"key-{number}")
        assert not recent.add("waits")


def test_it_never_knows_more_than_twice_as_many_keys() -> None:
    recent = RecentKeys(4)
    added = [f"key-{number}" for number in range(20)]
    for key in added:
        recent.add(key)
    assert len(recent) < 8
