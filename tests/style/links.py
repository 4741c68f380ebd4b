"""The links between the project's own pages: files that exist, and headings as GitHub makes anchors of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$", flags=re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING: Final = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*$", flags=re.MULTILINE)
_EXTERNAL: Final = ("http://", "https://", "mailto:")


class Link(NamedTuple):
    """One link of one page."""

    page: Path
    target: str


def pages() -> list[Path]:
    """Every Markdown page that people read."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "helm").rglob("*.md")),
        *sorted((ROOT / ".ci").rglob("*.md")),
    ]


def internal_links(page: Path) -> Iterator[Link]:
    """Links to files of this repository and to headings; code is left out."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))
    for match in _LINK.finditer(text):
        if not match["target"].startswith(_EXTERNAL):
            yield Link(page=page, target=match["target"])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, a repeated one with -1, -2 and so on."""
    seen: dict[str, int] = {}
    found = set()
    for heading in _HEADING.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        slug = _slug(heading["title"])
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        found.add(f"{slug}-{times}" if times else slug)
    return found


def trouble(link: Link) -> str | None:
    """Why a link leads nowhere, or None."""
    path, _, anchor = link.target.partition("#")
    target = (link.page.parent / path).resolve() if path else link.page
    if not target.exists():
        return f"{link.target}: no such file"
    if not target.is_relative_to(ROOT):
        return f"{link.target}: outside the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link.target}: no such heading"
    return None


def _slug(title: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
