"""`python -m dovetail_cli` is `dovetail`."""

from dovetail_cli.app import dovetail

if __name__ == "__main__":
    dovetail()
