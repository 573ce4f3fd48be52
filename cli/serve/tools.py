"""The tools: which command answers which request, and what agents read of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainplan.cli.serve.fields import Request
from trainplan.cli.serve.requests import (
    CatalogRequest,
    CheckRequest,
    CompareRequest,
    EstimateRequest,
    ExplainRequest,
    ExportRequest,
    ReplanRequest,
    ReportRequest,
    SchemaRequest,
    SearchRequest,
    SweepRequest,
    WhyNotRequest,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool."""

    command: str
    request: type[Request]
    says: str
    shared: bool = False
    """Several processes share its work."""

    @property
    def limited(self) -> bool:
        """May the client set how long it takes?"""
        return "time_limit" in self.request.model_fields


TOOLS: Mapping[str, Entry] = MappingProxyType(
    {
        "search": Entry(
            "search",
            SearchRequest,
            "Find the fastest parallel layout for training a model on a cluster that fits in "
            "memory, and prove it; nothing is run. Answers with the layout, step time in seconds, "
            "memory in bytes, alternatives and the proof (schema `plan`); where nothing fits, "
            "with what would (schema `infeasible`); with `pareto`, with a front. A plan is "
            "kept under a name, which all tools that need a plan take. Takes seconds, of the "
            "largest models minutes.",
            shared=True,
        ),
        "estimate": Entry(
            "estimate",
            EstimateRequest,
            "Price one layout: step time in seconds by term, memory in bytes by rank, whether it "
            "fits, and what would make it fit (schema `estimate`). A second or two.",
        ),
        "check": Entry(
            "check",
            CheckRequest,
            "Check a training launch: does it start, does it fit, what "
            "does it cost, which edits pay (schema `check`). Give the text of the script; it "
            "is read, never run.",
        ),
        "explain": Entry(
            "explain",
            ExplainRequest,
            "Name what limits a plan, where its step time goes, and what more memory, bandwidth or "
            "GPUs would buy, each by a search (schema `explain`).",
            shared=True,
        ),
        "why_not": Entry(
            "why-not",
            WhyNotRequest,
            "Explain why a layout is not the answer of a plan: the rule that refuses it, the bytes "
            "it lacks, or the seconds it loses by term (schema `why-not`).",
        ),
        "compare": Entry(
            "compare", CompareRequest, "Compare two plans, term by term (schema `compare`)."
        ),
        "sweep": Entry(
            "sweep",
            SweepRequest,
            "Vary the job of a plan, such as its GPUs: speed, scaling efficiency and the best "
            "layout of every point (schema `sweep`).",
            shared=True,
        ),
        "replan": Entry(
            "replan",
            ReplanRequest,
            "After nodes were lost: the fastest plan on what is left whose checkpoint loads, what "
            "the outage costs, and whether to wait for the nodes (schema `replan`). Seconds.",
            shared=True,
        ),
        "export": Entry(
            "export",
            ExportRequest,
            "The launch files of a plan: texts by name, the command that starts them, the "
            "variables to set first (schema `files`). Nothing is run.",
        ),
        "report": Entry(
            "report",
            ReportRequest,
            "Write a document as a page with charts for people, with `plan serve --write-files`.",
        ),
        "catalog": Entry(
            "catalog",
            CatalogRequest,
            "List what is known without a document: GPUs, models, hosts, methods of offload, "
            "optimizers, short forms of clusters; or every number of one GPU or model.",
        ),
        "schema": Entry(
            "schema",
            SchemaRequest,
            "The JSON Schema of a document, with the meaning of its keys; of `search-request` and "
            "the like: fields of a tool that its list leaves out (failures, islands, settings).",
        ),
    }
)
