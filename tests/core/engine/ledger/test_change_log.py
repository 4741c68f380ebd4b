"""Which rows have changed since a position, however far back that is."""

from random import Random

from dovetail.engine.ledger.node_table import NOTHING_READ, ChangeLog
from tests.seeds import seeds


def test_a_reader_that_is_too_far_behind_reads_all_rows() -> None:
    log = ChangeLog(length=2)
    assert (log.position, log.since(0), log.since(NOTHING_READ)) == (0, set(), None)
    for row in range(3):
        log.touch(row)
    assert (log.position, log.since(3), log.since(2)) == (3, set(), None)
    log.touch(7)
    assert (log.position, log.since(3), log.since(4)) == (4, {7}, set())


@seeds(20)
def test_no_reader_misses_a_change(seed: int) -> None:
    random, log = Random(seed), ChangeLog(length=1 + seed % 6)
    history, readers = list[int](), dict[int, int]()
    for step in range(60):
        row = random.randrange(5)
        log.touch(row)
        history.append(row)
        assert log.position == len(history), "a position is the number of changes"
        assert log.changed_at(row) == len(history)
        if random.random() < 0.4:
            readers[step] = log.position
        for position in readers.values():
            found = log.since(position)
            assert found is None or found == set(history[position:])
    assert log.changed_at(9) == 0
