"""The site's source folder: copies of the pages with their links adapted, and the generated references."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tools.site.crds import reference
from tools.site.links import ROOT, internal_links, rewritten

# Pages outside docs/, and their names in the site.
_MOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "docs/README.md": "index.md",
        "README.md": "readme.md",
        "README.zh-CN.md": "readme-zh.md",
        "CHANGELOG.md": "changelog.md",
        "SECURITY.md": "security.md",
        "CONTRIBUTING.md": "contributing.md",
        "helm/dovetail/README.md": "chart.md",
        "examples": "examples.md",
        "LICENSE": "LICENSE.txt",
    }
)
# The packages of the core: each is a page of the Python reference.
_CORE: Final = ROOT / "core" / "dovetail"


def write(folder: Path) -> list[Any]:
    """Fill the folder and return the navigation, in MkDocs' form."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "docs" / "images", folder / "images")
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE.txt")
    for page in _pages():
        _put(folder / _place(page), text=_copy(page))
    _put(folder / "examples.md", text=_examples())
    crds = _write_crds(folder)
    api = _write_api(folder)
    return [*_navigation(), {"Custom resources": crds}, {"Python API": api}]


def _pages() -> Iterator[Path]:
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in _MOVED if name.endswith(".md") and not name.startswith("docs/"))


def _place(path: Path) -> str:
    """Where a file of the repository is in the site."""
    name = path.relative_to(ROOT).as_posix()
    if name in _MOVED:
        return _MOVED[name]
    if name.startswith("examples/scripts/"):
        return f"examples.md#script-{path.stem}"
    if name.startswith("examples/kinds/"):
        return f"examples.md#kind-{path.stem}"
    if name.startswith("examples/autoscaling/"):
        return f"examples.md#autoscaling-{path.stem}"
    if name.startswith("examples/"):
        return f"examples.md#{path.stem}"
    return name.removeprefix("docs/")


def _copy(page: Path) -> str:
    here = Path(_place(page)).parent

    def moved(target: str) -> str:
        path, hash_sign, anchor = target.partition("#")
        if not path:
            return target
        place, inner, example = _place((page.parent / path).resolve()).partition("#")
        return os.path.relpath(place, here) + (inner + example or hash_sign + anchor)

    return rewritten(page.read_text(encoding="utf-8"), moved=moved)


def _examples() -> str:
    parts = [
        "# Examples",
        "",
        "Each manifest can be applied as it is, unless its first lines say otherwise, and each script runs as it is.",
    ]
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        parts += ["", f"## {path.stem}", "", "```yaml", path.read_text(encoding="utf-8").rstrip(), "```"]
    for path in sorted((ROOT / "examples" / "kinds").glob("*.yaml")):
        text = path.read_text(encoding="utf-8").rstrip()
        parts += ["", f"## Kind {path.stem}", "", "```yaml", text, "```"]
    for path in sorted((ROOT / "examples" / "autoscaling").glob("*.yaml")):
        text = path.read_text(encoding="utf-8").rstrip()
        parts += ["", f"## Autoscaling {path.stem}", "", "```yaml", text, "```"]
    for path in sorted((ROOT / "examples" / "scripts").iterdir()):
        language = "python" if path.suffix == ".py" else "bash"
        parts += ["", f"## Script {path.stem}", "", f"```{language}", path.read_text(encoding="utf-8").rstrip(), "```"]
    return "\n".join(parts) + "\n"


def _write_crds(folder: Path) -> list[Any]:
    navigation = []
    for crd in sorted((ROOT / "helm" / "dovetail" / "crd-files").glob("*.yaml")):
        text = reference(crd)
        _put(folder / "crds" / f"{crd.stem}.md", text=text)
        navigation.append({text.splitlines()[0].removeprefix("# "): f"crds/{crd.stem}.md"})
    return navigation


def _write_api(folder: Path) -> list[Any]:
    navigation = []
    for package in sorted(path.parent for path in _CORE.glob("*/__init__.py")):
        name = f"dovetail.{package.name}"
        _put(folder / "api" / f"{package.name}.md", text=f"# {name}\n\n::: {name}\n")
        navigation.append({name: f"api/{package.name}.md"})
    return navigation


def _navigation() -> list[Any]:
    """The sections of docs/README.md, each with the pages that it links to."""
    index = ROOT / "docs" / "README.md"
    sections: list[Any] = [{"Overview": "index.md"}]
    seen = {"index.md"}
    for part in re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        entries = []
        for text, target in re.findall(r"\[([^\]]+)\]\(([^)#\s]+)\)", part):
            place = _place((index.parent / target).resolve())
            if place not in seen:
                entries.append(
                    {text: place} if not _is_index(target) else {text: [place, *_below(index.parent / target)]}
                )
                seen.add(place)
        sections.append({part.splitlines()[0]: entries})
    return sections


def _is_index(target: str) -> bool:
    """Whether a link leads to a folder's own index."""
    return target.endswith("/README.md") and not target.startswith("..")


def _below(index: Path) -> list[Any]:
    """The pages that a folder's index links to in its folder."""
    pages = [page for page in _linked(index) if page.parent == index.resolve().parent]
    return [{page.stem: _place(page)} for page in pages]


def _linked(index: Path) -> list[Path]:
    """The files that a page links to, each once."""
    return list(
        dict.fromkeys((index.parent / link.target.partition("#")[0]).resolve() for link in internal_links(index))
    )


def unlisted() -> list[str]:
    """Pages of docs/ to which neither the index nor the index of their folder links."""
    index = ROOT / "docs" / "README.md"
    linked = set(_linked(index))
    for page in [page for page in linked if page.name == "README.md" and page.parent != ROOT]:
        linked |= {page, *_linked(page)}
    return [page.name for page in sorted((ROOT / "docs").rglob("*.md")) if page != index and page not in linked]


def _put(path: Path, *, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
