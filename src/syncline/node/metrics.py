"""The node's statistics as Prometheus metrics. A collector reads them when asked; nothing is counted twice."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from syncline.node.node import Node

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class NodeCollector(Collector):
    """Turns `Node.statistics()` into metric families."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        node = self._node
        ready = GaugeMetricFamily("syncline_ready", "1 while the node takes messages in")
        ready.add_metric([], float(node.state == "ready"))
        yield ready
        records = CounterMetricFamily("syncline_messages", "Messages judged", labels=["protocol", "verdict", "reason"])
        for (protocol, verdict, reason), count in sorted(node.receiver.verdicts.items()):
            records.add_metric([protocol, verdict, reason], count)
        yield records
        received = CounterMetricFamily("syncline_message_bytes", "Raw bytes judged", labels=["protocol"])
        for protocol, count in sorted(node.receiver.bytes.items()):
            received.add_metric([protocol], count)
        yield received
        failures = CounterMetricFamily("syncline_judge_failures", "Messages a judge of ours failed on")
        failures.add_metric([], node.judges.failures)
        yield failures
        followers = GaugeMetricFamily("syncline_followers", "Followers of the journal")
        followers.add_metric([], node.deliveries.followers)
        yield followers
        yield from _gauges("journal", node.journal.statistics().items())
        yield from _gauges("segments", node.drainer.statistics().items())
        yield from _gauges("libp2p", node.networks.statistics().items())
        for name, service in node.services.items():
            yield from _gauges(name, service.statistics().items())


def _gauges(part: str, pairs: Iterable[tuple[str, object]]) -> Iterable[Metric]:
    for name, value in pairs:
        if isinstance(value, int | float):
            gauge = GaugeMetricFamily(f"syncline_{part}_{name}", f"{part}: {name.replace('_', ' ')}")
            gauge.add_metric([], float(value))
            yield gauge


def exposition(node: Node) -> bytes:
    """What `/metrics` answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(node))
    return generate_latest(registry)
