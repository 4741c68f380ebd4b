"""`dovetail-trust`: makes the CA of the webhook's certificate, and publishes it to the API servers.

The chart runs it as a hook around an install, an upgrade and a rollback, with an account that Helm deletes afterwards:
the right to write a webhook configuration is the right to read and change every object of the cluster. It can be
repeated. Its decisions are in `publication`.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from dovetail.kube.client import Client
from dovetail.kube.errors import KubeconfigError, KubeError
from dovetail.process import hooks
from dovetail_certificates import trust
from dovetail_certificates.keeper import authority_secret
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.publication import SEEN_AFTER, plan_authority, plan_bundle
from dovetail_certificates.secret_store import OPAQUE, SecretError, SecretStore
from dovetail_certificates.signing import Authorities

RETRY_SECONDS: Final = 1.0
Sleep = Callable[[float], Awaitable[None]]


def main(argv: Sequence[str] | None = None) -> int:
    """Make and publish the CA; exit code 1 if that failed, 2 without a connection."""
    args = parser().parse_args(argv)
    try:
        problem = asyncio.run(_run(args))
    except KubeconfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if problem:
        hooks.say(f"Failed: {problem}")
    return 1 if problem else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = hooks.parser(
        "dovetail-trust", description="Make the CA of the webhook's certificate and publish it to the API servers."
    )
    options.add_argument(
        "--secret",
        required=True,
        metavar="NAME",
        help="Secret of the webhook's certificate; the CA is written into NAME-ca",
    )
    options.add_argument(
        "--mutating-webhook-configuration",
        dest="configuration",
        required=True,
        metavar="NAME",
        help="MutatingWebhookConfiguration whose webhooks get the CA",
    )
    options.add_argument(
        "--timeout", type=float, default=100.0, metavar="SECONDS", help="for everything (default: %(default)g)"
    )
    return options


async def _run(args: argparse.Namespace) -> str:
    async with hooks.client(args, prog="dovetail-trust") as client:
        return await run(client, args=args, say=hooks.say)


async def run(
    client: Client,
    *,
    args: argparse.Namespace,
    say: hooks.Say,
    now: Callable[[], datetime] = utc_now,
    sleep: Sleep = asyncio.sleep,
) -> str:
    """Establish the CA, again after an error until the time is over. Returns the last error; empty if it succeeded."""
    problem = ""
    try:
        async with asyncio.timeout(args.timeout):
            while True:
                try:
                    await establish(client, args=args, say=say, now=now, sleep=sleep)
                except KubeError as error:
                    problem = str(error)
                except SecretError as error:
                    return str(error)
                else:
                    return ""
                # The API server learns of the account's roles a moment after Helm has created them.
                await sleep(RETRY_SECONDS)
    except TimeoutError:
        return problem or f"not finished within {args.timeout:g} s"


async def establish(
    client: Client, *, args: argparse.Namespace, say: hooks.Say, now: Callable[[], datetime], sleep: Sleep
) -> None:
    """Make the CA if it is due, and publish what API servers must trust. Raises `KubeError` and `SecretError`.

    A CA is stored only after it is published, and so seen: `dovetail-certificates` signs with what is stored.
    """
    secrets = SecretStore(client, namespace=args.namespace, metrics=Metrics())
    name = authority_secret(args.secret)
    stored = await secrets.read(name, type_=OPAQUE)
    served = await secrets.read(args.secret)
    authority, reason = plan_authority(stored.data or {} if stored else {}, now=now())
    trusting = await trust.read(client, configuration=args.configuration)
    published = b"" if trusting is None else trusting.bundle
    bundle = plan_bundle(authority, published=published, served=served.data or {} if served else {}, now=now())
    if trusting is not None and await trust.publish(client, bundle=bundle, over=trusting):
        say(f"Published the CA in {trust.MUTATING.kind} {trusting.metadata.name}.")
    if not reason:
        say(f"The CA in Secret {name} is valid.")
        return
    if published:
        say(f"Waiting {SEEN_AFTER.seconds} s until every API server has seen the new CA.")
        await sleep(SEEN_AFTER.total_seconds())
    data = Authorities(current=authority).data()
    await secrets.write(name, data=data, over=stored, reason=reason, type_=OPAQUE)
    say(f"Made a CA in Secret {name}: {reason}.")
