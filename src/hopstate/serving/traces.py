"""Spans of OpenTelemetry, where it is installed: one of each request, one of each commit; nothing otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from hopstate import __version__
from hopstate.errors import MissingExtraError


@contextmanager
def span(
    name: str, attributes: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Give a span, as the child of the one that a request's headers name.

    Args:
        name: of the span.
        attributes: of the span.
        headers: of a request, which may bear a `traceparent`; None within the span of this thread.

    Yields:
        A dict, whose entries become attributes at the end.
    """
    later: dict[str, Any] = {}
    trace = _api()
    if trace is None:
        yield later
        return
    from opentelemetry.propagate import extract

    kind = trace.SpanKind.INTERNAL if headers is None else trace.SpanKind.SERVER
    context = None if headers is None else extract(dict(headers))
    tracer = trace.get_tracer("hopstate", __version__)
    with tracer.start_as_current_span(name, context=context, kind=kind, attributes=attributes) as made:
        try:
            yield later
        finally:
            made.set_attributes(later)


def export() -> bool:
    """Send spans where OTEL_EXPORTER_OTLP_ENDPOINT says, if it says so; return whether they are sent.

    A program that has set up OpenTelemetry itself (`opentelemetry-instrument`) keeps what it has.

    Raises:
        MissingExtraError: it says so, and what sends them is not installed.
    """
    if not any(os.environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", "TRACES_")):
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError(f"sending traces needs {error.name}: pip install 'hopstate[otel]'") from None
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return True
    own = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "hopstate"}
    provider = TracerProvider(resource=Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


@cache
def _api() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace
