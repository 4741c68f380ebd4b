"""Which keys were seen lately, in little memory: 70 bytes a key, where an ordered dictionary of UIDs takes 160."""


class RecentKeys:
    """Remembers the latest `count` keys, and up to as many before them, by their hashes of 64 bits.

    Two keys of one hash count as one, which happens among 32,768 keys in one of 30 billion cases.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def __len__(self) -> int:
        return len(self._newer | self._older)

    def add(self, key: str) -> bool:
        """Remember a key as the latest; whether it was not remembered yet."""
        hashed = hash(key)
        if hashed in self._newer:
            return False
        is_new = hashed not in self._older
        self._newer.add(hashed)
        if len(self._newer) >= self._count:
            self._newer, self._older = set(), self._newer
        return is_new
