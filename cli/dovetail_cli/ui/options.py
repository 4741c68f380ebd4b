"""Options that several commands share, as typer reads them. Declarations only."""

from typing import Annotated, Final

import typer

from dovetail_cli.ui import listing_options

# One thing and not a list: CSV has no rows for it.
DOCUMENTS: Final = ("table", "json", "yaml")

Kubeconfig = Annotated[str | None, listing_options.KUBECONFIG.for_typer()]
Context = Annotated[str | None, listing_options.CONTEXT.for_typer()]
Namespace = Annotated[str | None, listing_options.NAMESPACE.for_typer()]
Gateway = Annotated[str | None, listing_options.GATEWAY.for_typer()]
Output = Annotated[str, listing_options.OUTPUT.for_typer()]
OutputOfOne = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help=f"One of {', '.join(DOCUMENTS)}.")]
