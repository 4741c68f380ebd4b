"""PH: each of its terms decides where the others do not care."""

from dovetail.fragmentation.priced_headroom import PH
from dovetail.fragmentation.prices import PHSettings, PriceSettings
from tests.core.fragmentation.builders import cluster, mix_of, put, share, whole

FREE = PriceSettings(scarcity=0, newsvendor=0)


def test_a_share_goes_to_the_residual_that_it_uses_up():
    columns = cluster(1, 1)
    put(columns, share(400), node=0, device=0)
    put(columns, share(600), node=1, device=0)
    expected = mix_of((share(400), 1), (share(600), 1))
    choice = PH(columns, mix=expected, settings=PHSettings(gradient=0, prices=FREE)).choose(share(400))
    # In the first a 600 still fits, which is worth more than the 400 that the second is good for.
    assert choice is not None
    assert choice.node == 1


def test_the_gradient_keeps_whole_devices_whole():
    columns = cluster(2, 2)
    put(columns, share(500), node=1, device=0)
    choice = PH(columns, mix=mix_of((whole(2), 1)), settings=PHSettings(residual=0, prices=FREE)).choose(whole(1))
    assert choice is not None
    assert (choice.node, choice.devices) == (1, (1,))


def test_a_price_keeps_the_node_that_a_rare_big_shape_needs():
    columns = cluster(2, 4)
    expected = mix_of((whole(1), 99), (whole(4), 1))
    settings = PHSettings(gradient=0, residual=0, prices=PriceSettings(scarcity=0))
    choice = PH(columns, mix=expected, settings=settings).choose(whole(2))
    assert choice is not None
    assert choice.node == 0


def test_prices_stay_for_as_many_placements_as_set():
    columns = cluster(8)
    policy = PH(columns, mix=mix_of((whole(1), 1)), settings=PHSettings(refresh_placements=3))
    seen = []
    for _ in range(4):
        choice = policy.choose(whole(1))
        assert choice is not None
        seen.append(float(policy._terms.price[0]))
        columns.place(choice)
    assert seen[0] == seen[1] == seen[2] != seen[3]


def test_equal_nodes_go_to_the_first():
    choice = PH(cluster(2, 2, 2), mix=mix_of((share(300), 1), (whole(1), 1))).choose(share(300))
    assert choice is not None
    assert (choice.node, choice.devices) == (0, (0,))


def test_a_cluster_without_devices_takes_pods_that_need_none():
    assert PH(cluster(0, 0), mix=mix_of((whole(1), 1))).choose(whole(1)) is None
