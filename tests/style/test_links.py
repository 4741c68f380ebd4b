"""Every link between the project's pages leads to a file, and to a heading where it names one."""

from pathlib import Path

from tools.site.links import ROOT, Link, internal_links, pages, trouble


def test_every_link_leads_somewhere() -> None:
    links = (link for page in pages() for link in internal_links(page))
    assert [f"{link.page.relative_to(ROOT)}: {text}" for link in links if (text := trouble(link))] == []


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    assert trouble(Link(page=readme, target="docs/no-such-page.md")) == "docs/no-such-page.md: no such file"
    assert trouble(Link(page=readme, target="docs/jobs.md#no-such")) == "docs/jobs.md#no-such: no such heading"
    assert trouble(Link(page=readme, target=f"{tmp_path}")) == f"{tmp_path}: outside the repository"


def test_links_in_code_are_no_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`[a](b.md)`\n```\n[c](d.md)\n```\n[e](f.md) [g](https://example.org)\n", encoding="utf-8")
    assert [link.target for link in internal_links(page)] == ["f.md"]
