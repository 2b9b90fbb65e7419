"""What a following pipeline shows to Prometheus, on a port of its own. Numbers only, to whoever asks: there is no token
here, so beyond loopback it is served only where that was asked for. How the numbers come about is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from syncline.lake.pipeline import Pipeline


class PipelineCollector(Collector):
    """Reads the pipeline's counters when asked."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        summary = self._pipeline.summary
        for name, meaning, value in (
            ("batches", "Batches that landed something", summary.batches),
            ("segments", "Segments landed", summary.segments),
            ("records", "Records landed", summary.records),
            ("damaged_segments", "Segments put aside because they are damaged", summary.damaged_count),
            ("differing_records", "Records whose content lake and node judge differently", summary.differing),
        ):
            yield CounterMetricFamily(f"syncline_lake_{name}", meaning, value=value)
        rows = CounterMetricFamily("syncline_lake_rows", "Rows added per table", labels=["table"])
        for table, count in dict(summary.added).items():
            rows.add_metric([table], count)
        yield rows
        lag = self._pipeline.last_lag
        yield GaugeMetricFamily(
            "syncline_lake_lag_segments", "Sealed segments that have not landed", value=lag.segments
        )
        yield GaugeMetricFamily("syncline_lake_lag_records", "Journal positions not landed", value=lag.records)


def serve_metrics(pipeline: Pipeline, port: int, host: str) -> int:
    """Serve the pipeline's metrics on this address, and say on which port."""
    registry = CollectorRegistry()
    registry.register(PipelineCollector(pipeline))
    server, _ = start_http_server(port, addr=host, registry=registry)
    return int(server.server_port)
