"""The table of all keys in docs/configuration.md, from the settings that the programs load.

`python -m tests.core.config.page` writes it; a test fails while the page differs.
"""

import json
from pathlib import Path
from typing import Any, Final

from dovetail.config.reference import Key, keys

PAGE: Final = Path(__file__).parents[3] / "docs" / "configuration.md"
BEGIN: Final = "<!-- keys: written by `python -m tests.core.config.page` -->"
END: Final = "<!-- end of keys -->"


def with_table(page: str) -> str:
    """The page with the table as it has to be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def table() -> str:
    """The table in Markdown."""
    rows = [_row(key) for key in keys()]
    return "\n".join(["| key | default | allowed | meaning | effect |", "|---|---|---|---|---|", *rows])


def _row(key: Key) -> str:
    cells = [f"`{key.name}`", _default(key.default), key.allowed, key.description, "at once" if key.live else "restart"]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(value: Any) -> str:
    if isinstance(value, dict) and value:
        return f"{len(value)} known entries"
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
