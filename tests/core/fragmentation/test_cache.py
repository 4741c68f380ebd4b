"""What is kept for each shape, within its bound."""

from dovetail.fragmentation.cache import Kept
from tests.core.fragmentation.builders import share


def test_the_shapes_asked_for_last_stay():
    kept: Kept[str] = Kept(most_bytes=20)
    kept.store(share(1), value="one", size_bytes=10)
    kept.store(share(2), value="two", size_bytes=10)
    assert kept.get(share(1)) == "one"
    kept.store(share(3), value="three", size_bytes=10)
    assert [kept.get(share(milli)) for milli in (1, 2, 3)] == ["one", None, "three"]


def test_the_newest_stays_however_large():
    kept: Kept[str] = Kept(most_bytes=20)
    kept.store(share(1), value="one", size_bytes=10)
    kept.store(share(2), value="two", size_bytes=99)
    assert (len(kept), kept.get(share(2))) == (1, "two")
