"""`python -m tools.site`: build the site into out/site. A warning, such as a link to a missing heading, is an error."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tools.site.links import ROOT
from tools.site.sources import write

_SETTINGS: Final[dict[str, Any]] = {
    "site_name": "Dovetail",
    "site_description": "GPU jobs that fit together on Kubernetes",
    "docs_dir": "site-pages",
    "site_dir": "site",
    "use_directory_urls": False,  # pages open from the file system too
    "theme": {"name": "material", "features": ["navigation.tabs", "navigation.indexes", "content.code.copy"]},
    "markdown_extensions": [
        "tables",
        "attr_list",
        "pymdownx.superfences",
        "pymdownx.highlight",
        {"toc": {"permalink": True, "slugify": "%github%"}},
    ],
    "plugins": [
        "search",
        {
            "mkdocstrings": {
                "handlers": {
                    "python": {
                        "paths": [str(ROOT / "core")],
                        "options": {"show_submodules": True, "show_source": False, "show_root_heading": True},
                    }
                }
            }
        },
    ],
}


def build(out: Path, *, pages: Callable[[Path], list[Any]] = write) -> int:
    """Write the pages and the configuration into a folder, and build its `site`; the generator's exit code."""
    settings = _SETTINGS | {"nav": pages(out / "site-pages")}
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    config = out / "mkdocs.yml"
    # GitHub's anchors, so that one link works in both places.
    slugify = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    config.write_text(text.replace("'%github%'", slugify), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(build(ROOT / "out"))
