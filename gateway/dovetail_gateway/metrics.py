"""The gateway's metrics. Labels have bounded values: routes and statuses."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The gateway's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "dovetail_gateway_requests", "Requests by route and status.", ["route", "status"], registry=self.registry
        )
        self._duration = Histogram(
            "dovetail_gateway_request_duration_seconds",
            "Time to answer a request; of a stream, its whole life.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.streams = Gauge("dovetail_gateway_streams", "Open event streams.", registry=self.registry)

    def observe(self, route: str, *, status: int, seconds: float) -> None:
        """Count a request that is answered."""
        self._requests.labels(route, str(status)).inc()
        self._duration.labels(route).observe(seconds)
