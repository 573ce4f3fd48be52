"""Scores of measured runs, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from trainplan.costmodel.validate.intervals import Coverage
from trainplan.costmodel.validate.memory_scores import Verdicts
from trainplan.costmodel.validate.predict import Prediction
from trainplan.costmodel.validate.ranking import Ranking
from trainplan.costmodel.validate.scores import Scores
from trainplan.costmodel.validate.steps import Errors, measured_step_seconds

Json = Mapping[str, object]
SCHEMA = "trainplan/validate/v1"


def validate_document(
    predictions: Sequence[Prediction], scores: Scores, *, calibrate: bool
) -> Json:
    """The public document of `plan validate --json`."""
    scored = {id(row.prediction) for row in scores.rows}
    return {
        "schema": SCHEMA,
        "rows": [{**row_json(one), "scored": id(one) in scored} for one in predictions],
        "groups": list(_groups(scores)),
        "overall": _overall(scores, calibrate=calibrate),
    }


def row_json(one: Prediction) -> Json:
    """One record, priced or not."""
    run, estimate = one.run, one.estimate
    interval = estimate.uncertainty if estimate and one.timed else None
    step, peak = measured_step_seconds(run), run.measured.peak_memory_gib
    return {
        "id": run.id,
        "source_group": run.source_group,
        "strict": run.is_strict,
        "predicted_step_time_s": one.step_time_s,
        "predicted_step_time_low_s": interval.step_time_low_s if interval else None,
        "predicted_step_time_high_s": interval.step_time_high_s if interval else None,
        "measured_step_time_s": step,
        "step_time_error_fraction": _error(one.step_time_s, step),
        "terms": asdict(estimate.terms) if estimate and one.timed else None,
        "predicted_peak_memory_gib": one.peak_memory_gib,
        "measured_peak_memory_gib": peak,
        "peak_memory_kind": run.measured.peak_memory_kind,
        "peak_memory_error_fraction": _error(one.peak_memory_gib, peak),
        "predicted_fits": one.fits,
        "measured_fits": run.fits,
        "skip_reason": one.skipped.reason if one.skipped else None,
        "skip_detail": one.skipped.detail if one.skipped else None,
    }


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1


def _groups(scores: Scores) -> Iterator[Json]:
    for by, groups in scores.groups.items():
        yield from (_group("step_time", by, one) for one in groups)
    yield from (_group("peak_memory", "kind", one) for one in scores.memory.by_kind)
    yield from (_group("peak_memory", "source and kind", one) for one in scores.memory.by_source)


def _group(quantity: str, by: str, one: Errors) -> Json:
    return {"quantity": quantity, "by": by, **asdict(one)}


def _overall(scores: Scores, *, calibrate: bool) -> Json:
    study = scores.layout_study
    return {
        "step_time": {
            "num_asked": scores.num_asked,
            "num_priced": len(scores.rows),
            "num_sources": scores.headline.num_sources if scores.headline else 0,
            "mean_of_source_medians_fraction": (
                scores.headline.error_fraction if scores.headline else None
            ),
            "bias_fraction": scores.step_time.bias_fraction if scores.step_time else None,
            "median_fraction": scores.step_time.median_fraction if scores.step_time else None,
            "mean_fraction": scores.step_time.mean_fraction if scores.step_time else None,
        },
        "ranking": _ranking(scores.ranking),
        "multi_node_layout_study": (
            {"n": study.n, "mean_fraction": study.mean_fraction, **_ranking(study.ranking)}
            if study
            else None
        ),
        "fits": _verdicts(scores.verdicts),
        "coverage": [asdict(one) for one in _coverages(scores)],
        "after_one_step": asdict(scores.one_step) if calibrate and scores.one_step else None,
        "skipped": dict(scores.skipped),
    }


def _coverages(scores: Scores) -> tuple[Coverage, ...]:
    return (scores.coverage, *scores.regimes) if scores.coverage else ()


def _ranking(ranking: Ranking | None) -> Json:
    if ranking is None:
        return {"groups": [], "mean_spearman": None, "mean_regret_fraction": None, "sizes": []}
    return asdict(ranking)


def _verdicts(verdicts: Verdicts) -> Json:
    return {
        "labels": verdicts.labels,
        "answered": verdicts.answered,
        "true_fits": verdicts.true_fits,
        "false_fits": len(verdicts.false_fits),
        "false_refusals": len(verdicts.false_refusals),
        "true_refusals": verdicts.true_refusals,
        "false_fit_fraction": verdicts.false_fit_fraction,
        "false_refusal_fraction": verdicts.false_refusal_fraction,
        "false_fit_ids": list(verdicts.false_fits),
        "false_refusal_ids": list(verdicts.false_refusals),
    }
