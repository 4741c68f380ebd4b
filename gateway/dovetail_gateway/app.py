"""The gateway put together: cache, access, routes, and the application that serves them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from dovetail import names
from dovetail.api.gpujob import GPUJobSpec, GPUJobStatus
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.process.connections import Bounds, Connections
from dovetail.process.hosts import Hosts
from dovetail_gateway.access.callers import Clients
from dovetail_gateway.access.codes import Codes
from dovetail_gateway.access.legacy_account import Account, LegacyAccount
from dovetail_gateway.access.limits import MOST_USERS, Addresses, Network, RateLimit, Rates, tenant_of
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.sessions import Sessions
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.measured_jobs import MeasuredJobs
from dovetail_gateway.console.doors import Doors
from dovetail_gateway.console.serve import Files
from dovetail_gateway.metrics import Metrics
from dovetail_gateway.oidc.logins import Logins
from dovetail_gateway.oidc.provider import Provider, ProviderOptions
from dovetail_gateway.oidc.renewal import RenewedSessions
from dovetail_gateway.pages.serve import add_pages
from dovetail_gateway.routing.browser import session_of
from dovetail_gateway.routing.open_streams import OpenStreams, Times
from dovetail_gateway.routing.openapi import document
from dovetail_gateway.routing.server import Admission, Server
from dovetail_gateway.routing.table import Route
from dovetail_gateway.samples.prometheus import Prometheus, PrometheusOptions
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.sources import DeviceCurves
from dovetail_gateway.stream.events import EventStreams
from dovetail_gateway.stream.feed import Feed
from dovetail_gateway.v1.allocations import WAIT_SECONDS, Allocations
from dovetail_gateway.v1.routes import routes as v1_routes
from dovetail_gateway.v1.setup import SetupCalls
from dovetail_gateway.v1.status import StatusCalls
from dovetail_gateway.v2.resources import ResourceCalls
from dovetail_gateway.v2.routes import routes as v2_routes
from dovetail_gateway.v2.tasks import WAIT_SECONDS as TASK_WAIT_SECONDS
from dovetail_gateway.v2.tasks import Tasks
from dovetail_gateway.v2.templates import TemplateFile
from dovetail_gateway.v3.effects import Effects
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.logs import Logs
from dovetail_gateway.v3.me import Myself
from dovetail_gateway.v3.nodes import Nodes
from dovetail_gateway.v3.past.history import SECONDS as HISTORY_SECONDS
from dovetail_gateway.v3.past.history import History
from dovetail_gateway.v3.past.series import TimeSeries
from dovetail_gateway.v3.past.usage import GPUTime
from dovetail_gateway.v3.plan import Plan
from dovetail_gateway.v3.questions import Questions
from dovetail_gateway.v3.quotas import Quotas
from dovetail_gateway.v3.routes import routes as v3_routes
from dovetail_gateway.v3.snapshots import Snapshots
from dovetail_gateway.v3.waste import Waste

if TYPE_CHECKING:
    from dovetail_gateway.samples.store import SampleStore

_MOST_CONNECTIONS: Final = 2048
# As many as Python's clients open by default, and some more.
_MOST_OF_ONE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says.

    - `hosts`: the names by which the gateway is called, besides loopback
    - `rates`: the limits of requests; None for no limit
    - `proxies`: the networks of proxies whose X-Forwarded-For counts
    - `legacy`: the account of requests to v1 and v2 without a token; None refuses them
    - `legacy_own_user`: whether that account is for processes of the gateway's own user alone
    - `namespace`: that of the release, with the numbers of the devices
    - `allocation_namespace`: the namespace of v1's allocations and v2's tasks
    - `templates`: what tasks run
    - `allocation_wait_seconds`: how long an allocation may wait for its devices
    - `stream_times`: signs of life and reviews of open streams
    - `history_seconds`: how long the operator has to answer a query of the history
    - `anonymous_loopback`: whether requests of its own user here, without a token, have the kubeconfig's rights
    - `provider`: where people sign in; None for no single sign-on
    - `prometheus`: where the curves of devices come from; None for this gateway's own samples
    """

    hosts: tuple[str, ...] = ()
    rates: Rates | None = field(default_factory=Rates)
    proxies: tuple[Network, ...] = ()
    legacy: Account | None = None
    legacy_own_user: bool = False
    namespace: str = "dovetail-system"
    allocation_namespace: str = "default"
    templates: TemplateFile = TemplateFile()  # noqa: RUF009 - frozen
    allocation_wait_seconds: float = WAIT_SECONDS
    stream_times: Times = Times()  # noqa: RUF009 - frozen
    anonymous_loopback: bool = False
    history_seconds: float = HISTORY_SECONDS
    provider: ProviderOptions | None = None
    prometheus: PrometheusOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The parts of a running gateway; `own` is the client of its own account."""

    own: Client
    cache: ClusterCache
    feed: Feed
    answers: Answers
    sampler: Sampler
    clients: Clients
    reviews: Reviews
    application: web.Application
    connections: Connections
    metrics: Metrics
    sessions: Sessions
    codes: Codes
    logins: Logins | None


def bounds(proxies: Sequence[Network]) -> Bounds:
    """How many connections may be open."""
    is_proxy = Addresses(proxies).is_proxy
    return Bounds(
        most=_MOST_CONNECTIONS,
        of_address=_MOST_OF_ONE,
        of_user=_MOST_OF_ONE,
        of_tenant=MOST_USERS * _MOST_OF_ONE,
        is_proxy=is_proxy,
        tenant_of=tenant_of,
    )


def utc_now() -> datetime:
    """The time now."""
    return datetime.now(UTC)


@asynccontextmanager
async def gateway(
    connection: Connection,
    *,
    settings: Settings,
    options: Options,
    store: "SampleStore | None" = None,
    now: Callable[[], datetime] = utc_now,
) -> AsyncIterator[Gateway]:
    """A gateway to the connection's API server. Its cache fills once the caller runs `cache.run()`.

    Without a `store`, its samples last as long as it does.
    """
    async with (
        Client(connection, user_agent="dovetail-gateway") as own,
        Clients(connection, own=own) as clients,
        AsyncExitStack() as stack,
    ):
        provider: Provider | None = None
        if options.provider is not None:
            provider = await stack.enter_async_context(Provider(options.provider))
        prometheus: Prometheus | None = None
        if options.prometheus is not None:
            prometheus = await stack.enter_async_context(Prometheus(options.prometheus))
        reviews = Reviews(clients)
        cache = ClusterCache(
            own,
            settings=settings,
            reviews=reviews,
            namespace=options.namespace,
            allocation_namespace=options.allocation_namespace,
        )
        metrics, connections = Metrics(), Connections(bounds(options.proxies))
        sessions = Sessions()
        renewed = RenewedSessions(sessions, provider=provider)
        admission = Admission(
            sessions=renewed,
            hosts=Hosts(options.hosts),
            addresses=Addresses(options.proxies),
            rates=RateLimit(options.rates),
            identities=reviews.identities,
            legacy=None if options.legacy is None else LegacyAccount(options.legacy, client=own),
            legacy_own_user=options.legacy_own_user,
            anonymous_loopback=options.anonymous_loopback,
        )
        feed, answers = Feed(cache), Answers(cache, now=now, release=options.namespace)
        sampler = Sampler(cache, store=store, keep_days=settings.history_days, now=now)
        streams = OpenStreams(metrics=metrics, times=options.stream_times)
        table = routes(
            cache,
            clients=clients,
            reviews=reviews,
            feed=feed,
            answers=answers,
            sampler=sampler,
            prometheus=prometheus,
            streams=streams,
            options=options,
            now=now,
        )
        server = Server(sight=cache, admission=admission, metrics=metrics, connections=connections)
        app = server.application(table)

        async def end_streams(_app: web.Application) -> None:
            streams.stop()
            # Wakes those that wait for the next change.
            feed.wake()

        app.on_shutdown.append(end_streams)
        add_pages(app, document=openapi(table))
        logins = None if provider is None else Logins(provider)
        codes = Codes()
        doors = Doors(sessions, codes=codes, renewed=renewed, reviews=reviews, address=server.address, logins=logins)
        doors.add_to(app)
        Files(signed_in=lambda request: sessions.find(session_of(request)) is not None).add_to(app)
        yield Gateway(
            own=own,
            cache=cache,
            feed=feed,
            answers=answers,
            sampler=sampler,
            clients=clients,
            reviews=reviews,
            application=app,
            connections=connections,
            metrics=metrics,
            sessions=sessions,
            codes=codes,
            logins=logins,
        )


def routes(
    cache: ClusterCache,
    *,
    clients: Clients,
    reviews: Reviews,
    feed: Feed,
    answers: Answers,
    sampler: Sampler,
    prometheus: DeviceCurves | None,
    streams: OpenStreams,
    options: Options,
    now: Callable[[], datetime],
) -> list[Route]:
    """Every route, in the order of the document."""
    allocations = Allocations(
        cache,
        clients=clients,
        reviews=reviews,
        answers=answers,
        namespace=options.allocation_namespace,
        wait_seconds=options.allocation_wait_seconds,
    )
    v1 = v1_routes(
        status=StatusCalls(cache, now=now),
        allocations=allocations,
        setup=SetupCalls(cache, allocations=allocations),
    )
    tasks = Tasks(
        cache,
        clients=clients,
        reviews=reviews,
        answers=answers,
        templates=options.templates,
        namespace=options.allocation_namespace,
        wait_seconds=min(TASK_WAIT_SECONDS, options.allocation_wait_seconds),
    )
    v2 = v2_routes(tasks=tasks, resources=ResourceCalls(cache, clients=clients, reviews=reviews))
    jobs, measured = Jobs(cache, clients=clients, now=now), MeasuredJobs(cache)
    v3 = v3_routes(
        jobs=jobs,
        history=History(clients=clients, seconds=options.history_seconds),
        plan=Plan(cache),
        waste=Waste(measured, answers=answers, now=now),
        logs=Logs(cache, jobs=jobs, clients=clients, reviews=reviews, streams=streams),
        nodes=Nodes(cache),
        quotas=Quotas(cache, answers=answers, clients=clients, reviews=reviews),
        series=TimeSeries(cache, sampler=sampler, prometheus=prometheus, now=now),
        usage=GPUTime(cache, measured=measured, sampler=sampler, now=now),
        questions=Questions(answers, jobs=jobs, reviews=reviews, clients=clients),
        effects=Effects(answers, jobs=jobs),
        snapshots=Snapshots(feed),
        events=EventStreams(feed, cache=cache, reviews=reviews, streams=streams).serve,
        myself=Myself(cache),
    )
    return [*v1, *v2, *v3]


def openapi(table: list[Route]) -> dict[str, Any]:
    """The document that `/openapi.json` serves."""
    return document(table, title="Dovetail", version=names.VERSION, types=[GPUJobSpec, GPUJobStatus])
