"""Metrics for Prometheus: names and numbers only; each bridge has its own registry."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

_T = TypeVar("_T")

#: Monitors get their answer within a second, whatever hangs.
PROBE_SECONDS = 0.7


class Probe(Generic[_T]):
    """Share one call of `ask` among all callers that wait for its result at the same time."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[_T] | None = None

    async def answer(self) -> _T:
        """Return the result of `ask`, or raise its error. Raise TimeoutError if that takes too long."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._ask(), name="probe")
            # Retrieve the error of a late answer, so that asyncio does not log it.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._task
        done, _ = await asyncio.wait({task}, timeout=PROBE_SECONDS)
        if not done:
            raise TimeoutError
        return task.result()


#: Seconds, from a cached file to a long streamed answer of a model.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

#: Source of a module's figures, called at each scrape: `{name: value}`, counted since the start.
Figures = Callable[[], Mapping[str, float]]
#: The same for a module that must wait for its figures.
AwaitedFigures = Callable[[], Coroutine[Any, Any, Mapping[str, float]]]


class Metrics:
    """HTTP counters, and figures that other modules supply at each scrape."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "bridge_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "bridge_http_request_seconds",
            "From a request's head to the end of its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._awaited: dict[str, Probe[Mapping[str, float]]] = {}
        self._arrived: dict[str, Mapping[str, float]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request. All three labels have few values: a route is a pattern, never a path."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def add_gauge(self, name: str, words: str, label: str, figures: Figures) -> None:
        """Add a figure that goes up and down, one for each `label`."""
        self._registry.register(_Told(lambda: GaugeMetricFamily(name, words, labels=(label,)), figures))

    def add_awaited_gauge(self, name: str, words: str, label: str, figures: AwaitedFigures) -> None:
        """Add a gauge whose figures are awaited at each scrape; late ones are left out."""
        self._awaited[name] = Probe(figures)
        self.add_gauge(name, words, label, lambda: self._arrived.get(name, {}))

    def add_counter(self, name: str, words: str, label: str, figures: Figures) -> None:
        """Add a figure that only grows, one for each `label`."""
        self._registry.register(_Told(lambda: CounterMetricFamily(name, words, labels=(label,)), figures))

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        await asyncio.gather(*map(self._fetch, self._awaited))
        return generate_latest(self._registry)

    async def _fetch(self, name: str) -> None:
        self._arrived[name] = {}
        with suppress(TimeoutError):
            self._arrived[name] = await self._awaited[name].answer()


class _Told(Collector):
    def __init__(self, make: Callable[[], GaugeMetricFamily | CounterMetricFamily], figures: Figures) -> None:
        self._make = make
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        family = self._make()
        for label, value in self._figures().items():
            family.add_metric([label], value)
        yield family
