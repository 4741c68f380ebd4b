"""Which sections of a translated page are older than the English ones: `python -m tests.style.translations [--done]`.

Each second-level heading of a translation is followed by a comment with a hash of the English section that it
translates. `--done` writes the hashes of the present sections: run it after you have translated what changed.
"""

import hashlib
import re
import sys
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {
    "README.zh-CN.md": "README.md",
    "docs/zh-CN/cluster-runs.md": "docs/cluster-runs.md",
    "docs/zh-CN/commands.md": "docs/commands.md",
    "docs/zh-CN/console.md": "docs/console.md",
    "docs/zh-CN/migration.md": "docs/migration.md",
}
_HEADING: Final = re.compile(r"^## .*$", flags=re.MULTILINE)
_MARK: Final = re.compile(r"<!-- of ([0-9a-f]{12}) -->\n\n?")


def sections(text: str) -> list[tuple[str, str]]:
    """The second-level headings of a page, each with the text below it; the text above the first has none."""
    starts = [0, *(found.start() for found in _HEADING.finditer(text)), len(text)]
    parts = [text[start:end] for start, end in pairwise(starts)]
    return [(part.partition("\n")[0] if part.startswith("## ") else "", part) for part in parts]


def stale(page: str) -> list[str]:
    """A sentence for each section of a translation that does not translate the present English one."""
    translated = sections((ROOT / page).read_text(encoding="utf-8"))
    english = sections((ROOT / PAGES[page]).read_text(encoding="utf-8"))
    found = []
    for own, source in zip_longest(translated, english):
        if own is None or source is None:
            return [f"{page} has {len(translated)} sections, {PAGES[page]} has {len(english)}"]
        mark = _MARK.search(own[1])
        if mark is None or mark[1] != _hash(source[1]):
            found.append(f"{page}: {own[0] or 'the beginning'} is older than {source[0] or 'the beginning'}")
    return found


def marked(page: str) -> str:
    """The translation with the hashes of the present English sections."""
    english = sections((ROOT / PAGES[page]).read_text(encoding="utf-8"))
    own = sections((ROOT / page).read_text(encoding="utf-8"))
    return "".join(_with_mark(part, mark=_hash(source)) for (_, part), (_, source) in zip(own, english, strict=True))


def _with_mark(part: str, *, mark: str) -> str:
    plain = _MARK.sub("", part)
    heading, _, rest = plain.partition("\n")
    return f"{heading}\n\n<!-- of {mark} -->\n\n{rest.lstrip()}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    for name in PAGES:
        if "--done" in sys.argv[1:]:
            (ROOT / name).write_text(marked(name), encoding="utf-8")
        print(*stale(name), sep="\n")
