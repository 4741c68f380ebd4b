"""Writes the generated blocks of docs/commands.md and of its translation."""

from tools.commands import pages

if __name__ == "__main__":
    for page in pages.PAGES:
        page.write_text(pages.generated(page), encoding="utf-8")
