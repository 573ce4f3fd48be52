import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.documents.calibration import Outcome, Trial
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner import SearchOptions, parse_choice
from trainplan.planner.tuning.contenders import contenders, exports
from trainplan.planner.tuning.events import Event
from trainplan.planner.tuning.knowledge import Ended, knowledge_of
from trainplan.planner.tuning.loop import next_trial, run, tune, what_remains
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.simulated import Faults, MachineDocument, SimulatedMachine

FOUR = TuneOptions(trials=4)


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("gpt2-xl", "1x4:a100-sxm-40gb", global_batch_size=64, seq_length=1024)


@pytest.fixture(scope="module")
def known(job):
    return knowledge_of(contenders(job, most=60))


def machine(**fields):
    return SimulatedMachine(MachineDocument(**fields))


def ended(known, launch, options=FOUR):
    return list(run(known, launch, options))[-1]


def launches(known, launch, options=FOUR):
    """Trials that are launched, and the last event."""
    tried = []

    def recorded(trial):
        tried.append(trial)
        return launch(trial)

    return tried, ended(known, recorded, options)


def test_it_stops_when_the_trials_are_spent(known):
    last = ended(known, machine(own_spread=0.05, seed=1).launch)
    assert last.stop == "trials"
    assert [one.number for one in last.trials] == [1, 2, 3, 4]
    assert "4 trials" in last.says
    assert f"{100 * last.remains.probability_faster:.0f} %" in last.says


def test_it_stops_when_the_seconds_are_spent(known):
    options = TuneOptions(trials=9, seconds=100.0)
    last = ended(known, machine().launch, options)
    assert last.stop == "seconds"
    assert len(last.trials) == 2  # one takes 60 s and its steps


def test_it_stops_when_nothing_is_likely_to_be_faster(known):
    options = TuneOptions(trials=40, settled=0.9, worth=0.03)
    last = ended(known, machine().launch, options)
    assert last.stop == "settled"
    assert last.remains.probability_faster <= 0.1
    assert len(last.trials) < 40


def test_the_best_is_the_fastest_that_was_measured(known):
    last = ended(known, machine(own_spread=0.05, seed=2).launch)
    steps = [one.outcome.step_time_s for one in last.trials if one.outcome.step_time_s]
    assert last.best.measured_step_time_s == min(steps)
    assert last.trials[last.best.number - 1].layout == last.best.layout


def test_the_fastest_of_a_machine_like_the_model_is_tried_among_four(known):
    # what is off is the network inside the node alone: the search for the best is not misled
    hidden = machine(scalars={"intra_node_bandwidth": 0.5, "speed": 0.9})
    group = known.contenders.groups[0]
    seconds, peaks = hidden.of_table(group.job, group.table)
    best = seconds[peaks <= group.memory_bytes].min()
    assert ended(known, hidden.launch).best.measured_step_time_s <= 1.01 * best


def test_an_earlier_run_counts_and_is_not_repeated(job, known):
    first, _ = launches(known, machine().launch, TuneOptions(trials=2))
    earlier = [(trial, machine().launch(trial)) for trial in first]
    few = SearchOptions(fix=(parse_choice(f"tp={first[0].layout.tp}", excluded=False),))
    options = TuneOptions(trials=4, search=few)
    events = list(tune(job, machine().launch, options, earlier=earlier))
    assert events[0].earlier_trials == 2
    started = [one for one in events if one.event == "trial_started"]
    assert [one.number for one in started] == [3, 4]
    assert not {one.forecast.layout for one in started} & {trial.layout for trial in first}
    assert len(events[-1].trials) == 4


@pytest.mark.parametrize("ending", ["out_of_memory", "crash", "hang", "not_a_number"])
def test_a_trial_that_fails_rules_out_its_layout_and_no_other(known, ending):
    def launch(trial):
        return Outcome(ending=ending) if trial.number == 1 else machine().launch(trial)

    tried, last = launches(known, launch)
    assert len({trial.layout for trial in tried}) == 4
    assert last.trials[0].outcome.ending == ending
    assert last.best is not None
    assert last.remains.untried == len(known.contenders) - 4


def test_a_lost_node_costs_no_trial_and_its_layout_runs_once_more(known):
    def launch(trial):
        return Outcome(ending="lost_node") if trial.number == 1 else machine().launch(trial)

    tried, last = launches(known, launch)
    assert tried[0].layout == tried[1].layout
    assert "node" in tried[1].why
    assert len(tried) == 5
    assert [one.outcome.ending for one in last.trials].count("measured") == 4


def test_where_every_node_is_lost_it_ends_without_a_best(known):
    tried, last = launches(known, lambda trial: Outcome(ending="lost_node"))
    assert len(tried) == 8  # each layout twice
    assert last.best is None
    assert last.calibration is None


def test_a_crash_makes_layouts_like_it_less_likely_to_run(known):
    job, layout = known.contenders.at(0)
    trial = Trial(number=1, job=job, layout=layout, why="")
    after = known.after(Ended(0, trial, Outcome(ending="crash")))
    alike, apart = np.argsort(-known.prior.alike[0])[[1, -1]]
    fall = known.runs - after.runs
    assert fall[alike] > 2 * fall[apart] > 0
    assert not after.open_rows[0]


def test_all_contenders_can_be_exported_and_some_are_near_the_limit_of_memory(job, known):
    assert all(exports(*one) for one in known.contenders)
    filled = known.prior.linear.prices.used_bytes / known.contenders.memory_bytes
    assert (filled > 0.95).any()
    assert (filled <= 1.1).all()


def test_only_what_can_be_started_is_tried(job):
    def alone(job, layout):
        return layout.pp == 1 and exports(job, layout)

    few = SearchOptions(fix=(parse_choice("micro_batch_size=2", excluded=False),))
    options = TuneOptions(trials=3, search=few)
    last = list(tune(job, machine().launch, options, can_start=alone))[-1]
    assert {one.layout.pp for one in last.trials} == {1}
    with pytest.raises(SpecError, match="no layout can be tried"):
        list(tune(job, machine().launch, options, can_start=lambda job, layout: False))


def test_contenders_keep_to_the_choices_of_the_user(job):
    options = SearchOptions(fix=(parse_choice("pp=2", excluded=False),))
    assert {layout.pp for _, layout in contenders(job, options)} == {2}
    impossible = SearchOptions(fix=(parse_choice("tp=2", excluded=False),))  # of 25 heads
    assert len(contenders(job, impossible)) == 0


def test_contenders_of_other_settings_differ_in_one_and_run_otherwise(make_job):
    job = make_job("llama2-13b", "2x8:a100-sxm-40gb", global_batch_size=64, seq_length=4096)
    found = contenders(job, most=40)
    assert len(found.groups) > 1
    for group in found.groups[1:]:
        assert len(group.job.options.stated()) == 1
    groups = [{group.table.row(i) for i in range(len(group.table))} for group in found.groups]
    assert groups[1] <= groups[0]


def test_another_value_of_a_setting_of_the_plan_is_one_difference(make_job):
    job = make_job("mixtral-8x7b", "2x8:h100-sxm", global_batch_size=64, seq_length=4096)
    made = RuntimeOptions(moe_dispatcher="deepep")
    layout = Layout(tp=2, dp=8, ep=8, etp=1, sequence_parallel=True)
    chosen = job.model_copy(update={"options": made})
    found = contenders(job, also=[layout], chosen=chosen, most=1)
    dispatchers = {group.job.options.moe_dispatcher for group in found.groups}
    assert dispatchers == {"deepep", "hybridep", None}


def test_a_job_that_nothing_is_written_for_says_so(make_job):
    job = make_job("gpt2-xl", "1x4:a100-sxm-40gb", seq_length=1024)
    job = job.model_copy(update={"runtime": "torch-eager"})
    with pytest.raises(SpecError, match="no layout can be tried"):
        list(tune(job, machine().launch, FOUR))


def test_events_are_read_back_from_their_json(known):
    adapter = TypeAdapter(Event)
    for event in run(known, machine(own_spread=0.05).launch, FOUR):
        text = event.model_dump_json()
        assert json.loads(text)["event"] == event.event
        assert adapter.validate_json(text) == event


def test_the_machine_that_is_reported_is_the_hidden_one(known):
    hidden = machine(scalars={"speed": 0.6})
    last = ended(known, hidden.launch)
    speed = next(one for one in last.scalars if one.name == "speed")
    assert speed.low < 0.6 < 1.1 * speed.high
    own = last.calibration.speeds[-1]
    assert own.model
    assert own.speed.value == pytest.approx(0.6, rel=0.05)


def test_once_memory_ran_out_only_what_likely_fits_is_tried_until_something_runs(known):
    job, layout = known.contenders.at(0)
    first = Ended(
        0, Trial(number=1, job=job, layout=layout, why=""), Outcome(ending="out_of_memory")
    )
    failed = known.after(first)
    some = failed.promising_rows
    assert 0 < some.sum() < failed.open_rows.sum()
    assert failed.runs[some].min() > failed.runs[failed.open_rows & ~some].max()
    row = int(np.flatnonzero(some)[0])
    job, layout = known.contenders.at(row)
    ran = Outcome(ending="measured", step_time_s=1.0)
    after = failed.after(Ended(row, Trial(number=2, job=job, layout=layout, why=""), ran))
    assert (after.promising_rows == after.open_rows).all()


def test_a_simulated_machine_ends_the_same_trial_the_same_way(known):
    job, layout = known.contenders.at(3)
    trial = Trial(number=2, job=job, layout=layout, why="")
    noisy = {"seed": 5, "own_spread": 0.1, "shared_spread": 0.1, "trial_spread": 0.02}
    one, again = machine(**noisy).launch(trial), machine(**noisy).launch(trial)
    other = machine(**noisy | {"seed": 6}).launch(trial)
    assert one == again
    assert one.step_time_s != other.step_time_s


def test_hidden_scalars_and_memory_move_the_outcome_as_they_say(known):
    job, layout = known.contenders.at(3)
    trial = Trial(number=1, job=job, layout=layout, why="")
    plain = machine().launch(trial)
    slow = machine(scalars={"speed": 0.5, "fixed_seconds": 0.25}).launch(trial)
    assert slow.step_time_s == pytest.approx(2 * plain.step_time_s + 0.25)
    assert machine(memory_factor=3.0).launch(trial).ending == "out_of_memory"


def test_faults_come_as_often_as_they_say(known):
    faulty = machine(faults=Faults(crash=0.2, slow_node=0.2, slow_factor=2.0))
    job, layout = known.contenders.at(3)
    trials = (Trial(number=n, job=job, layout=layout, why="") for n in range(1, 101))
    found = [faulty.outcome(trial, 1.5, peak=1.0, memory=2.0) for trial in trials]
    crashes = sum(one.ending == "crash" for one in found)
    slow = sum(one.step_time_s == 3.0 for one in found)
    assert 8 < crashes < 35
    assert 8 < slow < 35


def test_the_next_trial_is_the_one_most_likely_the_fastest(known):
    left = what_remains(known, FOUR)
    _, row = next_trial(known, left, FOUR)
    assert left.fastest[row] == left.fastest.max() > 0


LOADED = {"trial_spread": 0.35, "step_spread": 0.4, "slow_steps": 0.1}
"""Two trials of a layout differ by up to 2.6 times."""


def rows_of(known, tried):
    """Which contender each trial ran."""
    place = {pair: row for row, pair in enumerate(known.contenders)}
    return [place[trial.job, trial.layout] for trial in tried]


def quiet(launch, spread):
    """A machine that says how its steps differ: by so much."""

    def stated(trial):
        outcome = launch(trial)
        step = outcome.step_time_s
        ends = {"lowest_s": step * (1 - spread), "highest_s": step * (1 + spread)}
        return outcome.model_copy(update={**ends, "spread_fraction": spread})

    return stated


@pytest.mark.parametrize("spread", [0.0, 0.001, 0.006])
def test_on_a_quiet_machine_the_trials_are_those_without_a_spread(known, spread):
    hidden = machine(own_spread=0.05, trial_spread=0.01, seed=3).launch
    plain, _ = launches(known, hidden, TuneOptions(trials=6))
    again, last = launches(known, quiet(hidden, spread), TuneOptions(trials=6))
    assert [one.layout for one in again] == [one.layout for one in plain]
    assert last.best.repeats == ()
    assert last.noise_fraction == 0


@pytest.mark.parametrize("seed", range(4))
def test_on_a_loaded_machine_the_first_two_run_again_within_the_budget(known, seed):
    hidden = machine(own_spread=0.05, seed=seed, **LOADED).launch
    tried, last = launches(known, hidden, TuneOptions(trials=6))
    rows = rows_of(known, tried)
    assert len(rows) == 6
    assert len(set(rows[:4])) == 4
    assert rows[4] in rows[:4]
    assert rows[5] in rows[:4]
    assert rows[4] != rows[5]
    assert "once more" in tried[4].why
    assert last.noise_fraction > 0.2
    best = last.best
    times = [one.outcome.step_time_s for one in last.trials if one.layout == best.layout]
    assert best.measured_step_time_s == pytest.approx(np.exp(np.mean(np.log(times))))
    assert len(best.repeats) == len(times) - 1


def test_of_few_trials_one_is_not_spent_on_itself(known):
    hidden = machine(own_spread=0.05, **LOADED).launch
    for trials in (1, 2):
        tried, _ = launches(known, hidden, TuneOptions(trials=trials))
        assert len({trial.layout for trial in tried}) == trials


def test_before_it_ends_early_the_first_two_run_again(job):
    few = knowledge_of(contenders(job, most=3))
    number = len(few.contenders)
    tried, last = launches(
        few, machine(**LOADED).launch, TuneOptions(trials=40, settled=0.999, worth=0.0001)
    )
    rows = rows_of(few, tried)
    assert last.stop == "settled"  # nothing is left to try
    assert sorted(rows[:number]) == list(range(number))
    assert 2 <= len(rows) - number == len(set(rows[number:]))


def test_a_budget_of_seconds_keeps_time_for_the_two(known):
    tried, _ = launches(known, machine(**LOADED).launch, TuneOptions(trials=40, seconds=420))
    rows = rows_of(known, tried)
    assert len(set(rows)) == len(rows) - 2


def test_more_noise_is_less_certainty(known):
    """The same medians from steps that differ more: the belief is wider, the chance larger."""

    def after(spread):
        found = known
        for row, factor in ((0, 1.0), (3, 1.3), (6, 1.2), (9, 1.25)):
            job, layout = found.contenders.at(row)
            trial = Trial(number=row + 1, job=job, layout=layout, why="")
            step = factor * np.exp(known.planned_log_seconds[0])
            outcome = Outcome(ending="measured", step_time_s=step, steps=10, spread_fraction=spread)
            found = found.after(Ended(row, trial, outcome))
        return found

    wide = [after(spread).belief.spread[0] for spread in (0.001, 0.1, 0.4)]
    assert wide == sorted(wide)
    assert wide[2] > 2 * wide[0]
    chances = [what_remains(after(spread), FOUR).probability for spread in (0.001, 0.4)]
    assert chances[0] < chances[1]


def test_trials_that_agree_say_that_the_machine_is_steadier_than_its_steps(known):
    def ran(number, row, factor):
        job, layout = known.contenders.at(row)
        step = factor * float(np.exp(known.planned_log_seconds[row]))
        outcome = Outcome(ending="measured", step_time_s=step, steps=10, spread_fraction=0.2)
        return Ended(row, Trial(number=number, job=job, layout=layout, why=""), outcome)

    once = known.after(ran(1, 0, 1.0)).after(ran(2, 1, 1.0))
    agreed = once.after(ran(3, 0, 1.01)).after(ran(4, 1, 0.99))
    differing = once.after(ran(3, 0, 2.6)).after(ran(4, 1, 0.5))
    assert once.noise == pytest.approx(0.2 / 0.674, rel=0.01)
    assert agreed.noise < 0.6 * once.noise
    assert differing.noise > 1.3 * once.noise
    # repeats are one layout's, so what it has of its own counts once
    assert agreed.belief.log_seconds[0] == pytest.approx(
        float(np.log(agreed.seconds_of(0))), abs=0.3
    )
