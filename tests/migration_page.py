"""The walks of docs/migration.md: the commands that a reader types, from the page itself."""

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs" / "migration.md"
TRANSLATION: Final = PAGE.parent / "zh-CN" / PAGE.name


def walk(name: str, *, page: Path = PAGE) -> str:
    """The commands of one walk, in the page's order."""
    found = re.findall(rf"^<!-- walk: {name} -->\n```sh\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no walk {name}"
    return "".join(found)
