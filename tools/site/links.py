"""The links between the project's own pages: which there are, where they lead, and how a copy of a page keeps them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$"
_LINK: Final = r"(?P<text>\[[^\]]*\])\((?P<target>[^)\s]+)\)"
_PARTS: Final = re.compile(f"{_FENCE}|`[^`\n]*`|{_LINK}", flags=re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*$", flags=re.MULTILINE)
_EXTERNAL: Final = ("http://", "https://", "mailto:")


class Link(NamedTuple):
    """One link of one page."""

    page: Path
    target: str


def pages() -> list[Path]:
    """Every Markdown page of the project."""
    docs, chart = (ROOT / "docs").rglob("*.md"), (ROOT / "helm").rglob("*.md")
    return [*sorted(ROOT.glob("*.md")), *sorted(docs), *sorted(chart)]


def internal_links(page: Path) -> Iterator[Link]:
    """The links of a page to files of this repository and to headings; links in code do not count."""
    for match in _PARTS.finditer(page.read_text(encoding="utf-8")):
        target = match["target"]
        if target is not None and not target.startswith(_EXTERNAL):
            yield Link(page=page, target=target)


def rewritten(text: str, *, moved: Callable[[str], str]) -> str:
    """The text with `moved(target)` in place of each internal link's target."""

    def replaced(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or target.startswith(_EXTERNAL):
            return match[0]
        return f"{match['text']}({moved(target)})"

    return _PARTS.sub(replaced, text)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings; a repeated heading gets -1, -2 and so on."""
    text = _PARTS.sub(lambda match: "" if match["fence"] else match[0], page.read_text(encoding="utf-8"))
    seen: dict[str, int] = {}
    found = set()
    for heading in _HEADING.finditer(text):
        slug = slug_of(heading["title"])
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        found.add(f"{slug}-{times}" if times else slug)
    return found


def trouble(link: Link) -> str | None:
    """Why a link leads nowhere, or None."""
    path, _, anchor = link.target.partition("#")
    target = (link.page.parent / path).resolve() if path else link.page
    if not target.is_relative_to(ROOT):
        return f"{link.target}: outside the repository"
    if not target.exists():
        return f"{link.target}: no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link.target}: no such heading"
    return None


def slug_of(title: str) -> str:
    """The anchor of a heading, as GitHub derives it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
