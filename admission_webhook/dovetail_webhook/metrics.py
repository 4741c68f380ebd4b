"""The webhook's metrics. Labels have bounded values: kinds of objects, and outcomes."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """The webhook's metrics, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reviews = Counter(
            "dovetail_webhook_reviews",
            "Objects that the API server asked about, by what became of them.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "dovetail_webhook_review_duration_seconds",
            "Time to answer the API server.",
            buckets=_SECONDS,
            registry=self.registry,
        )
