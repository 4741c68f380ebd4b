"""What the programs share that Helm runs as hooks: options, a client and sentences. They end when they are done."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from dovetail import names
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client

Say = Callable[[str], None]


def parser(prog: str, *, description: str) -> argparse.ArgumentParser:
    """The options of every hook; each adds its own."""
    options = argparse.ArgumentParser(prog=prog, description=description)
    add_kubeconfig_option(options)
    options.add_argument(
        "--namespace", default=names.RELEASE_NAMESPACE, metavar="NAME", help="the release's (default: %(default)s)"
    )
    return options


def add_kubeconfig_option(options: argparse.ArgumentParser) -> None:
    """Add the option that says how a program of a pod reaches the API server."""
    options.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, else the pod's service account"
    )


def client(args: argparse.Namespace, *, prog: str) -> Client:
    """A client for the API server that the options name. Raises `KubeconfigError`."""
    return Client(load_connection(args.kubeconfig), user_agent=prog)


def say(sentence: str) -> None:
    """Print a sentence at once: the output of a hook is read while it runs."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()
