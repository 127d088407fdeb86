import pytest

from harness.engine import ledger as module
from harness.engine.ledger import BudgetExhausted, Ledger, Work


def flops(amount, **more):
    return {"work": Work(amount, **more)}


def test_work_is_executed_as_it_is_useful_unless_said_otherwise():
    assert Work(7).executed_flops == 7
    assert Work(7, 9).executed_flops == 9
    assert Work(0, 0).executed_flops == 0


def test_charges_add_up_by_phase():
    ledger = Ledger("flops", 100)
    ledger.charge({"a": Work(3, 5, 1), "b": Work(4, updates=1, trained_tokens=6)})
    ledger.charge({"a": Work(10)})
    assert ledger.spent == Work(17, 19, 1, 6, 1)
    assert ledger.phases == {"a": Work(13, 15, 1), "b": Work(4, 4, 0, 6, 1)}


def test_what_does_not_fit_is_refused_whole():
    ledger = Ledger("flops", 10)
    ledger.charge(flops(6))
    with pytest.raises(BudgetExhausted):
        ledger.charge({"a": Work(2), "b": Work(3)})
    assert ledger.spent.flops == 6
    assert "a" not in ledger.phases
    ledger.charge(flops(4))
    assert ledger.exhausted


@pytest.mark.parametrize(("axis", "fits"), [("flops", 2), ("tokens", 4), ("updates", 6)])
def test_every_counted_axis_counts_its_own(axis, fits):
    ledger = Ledger(axis, 12)
    piece = {"x": Work(6, generated_tokens=3, updates=2, trained_tokens=100)}
    for _ in range(fits):
        ledger.charge(piece)
    with pytest.raises(BudgetExhausted):
        ledger.charge(piece)
    assert ledger.fraction == 1.0


def test_executed_flops_are_not_on_the_budget():
    ledger = Ledger("flops", 10)
    ledger.charge({"x": Work(10, 1000)})
    assert ledger.spent.executed_flops == 1000


def test_points_are_met_once_and_before_the_work_that_goes_past_them():
    seen = []
    ledger = Ledger("flops", 100, (25.0, 50.0, 75.0), lambda point: seen.append((point, ledger.spent.flops)))
    ledger.charge(flops(25))
    assert seen == []  # at the point, not past it
    ledger.charge(flops(1))
    assert seen == [(0, 25)]
    ledger.charge(flops(60))
    assert seen == [(0, 25), (1, 26), (2, 26)]
    with pytest.raises(BudgetExhausted):
        ledger.charge(flops(60))
    assert len(seen) == 3


def test_work_that_does_not_fit_still_passes_the_points_it_would_have_passed():
    seen = []
    ledger = Ledger("flops", 100, (50.0,), seen.append)
    with pytest.raises(BudgetExhausted):
        ledger.charge(flops(101))
    assert seen == [0]


def test_closing_meets_what_is_left():
    seen = []
    ledger = Ledger("flops", 100, (25.0, 50.0), seen.append)
    ledger.charge(flops(30))
    ledger.close()
    ledger.close()
    assert seen == [0, 1]


def test_booked_work_is_seen_and_not_charged():
    ledger = Ledger("flops", 10)
    ledger.book("evaluation", Work(1000))
    ledger.charge(flops(10))
    assert ledger.spent.flops == 10
    assert ledger.phases["evaluation"].flops == 1000


def test_what_follows_the_last_update_is_discarded():
    ledger = Ledger("flops", 100)
    ledger.charge(flops(10))
    ledger.commit()
    ledger.charge(flops(7))
    assert ledger.discarded_flops == 7
    ledger.commit()
    assert ledger.discarded_flops == 0


def test_an_update_that_was_not_made_is_taken_back_but_its_cost_stays():
    ledger = Ledger("updates", 10)
    ledger.charge({"update": Work(5, updates=1)})
    ledger.cancel_update()
    assert ledger.spent == Work(5)
    assert ledger.phases["update"].updates == 0


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(module.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_the_clock_stands_still_outside(clock):
    ledger = Ledger("seconds", 10)
    ledger.start()
    clock.now += 3
    with ledger.outside("evaluation"):
        clock.now += 50
    clock.now += 4
    assert ledger.position() == 7
    assert ledger.seconds["evaluation"] == 50
    ledger.stop()
    clock.now += 9
    assert ledger.train_seconds() == 7
    ledger.stop()
    assert ledger.train_seconds() == 7


def test_a_block_outside_leaves_a_clock_that_was_not_running_alone(clock):
    ledger = Ledger("seconds", 10)
    with ledger.outside("evaluation"):
        clock.now += 5
    assert ledger.train_seconds() == 0


def test_a_phase_takes_the_time_of_the_budgets_clock_alone(clock):
    ledger = Ledger("flops", 10)
    ledger.start()
    for _ in range(2):
        with ledger.timed("sample"):
            clock.now += 3
            with ledger.outside("evaluation"):
                clock.now += 50
    with ledger.timed("update"):
        clock.now += 1
        with ledger.timed("log"):
            clock.now += 2
        clock.now += 3
    clock.now += 4
    assert ledger.train_phases == {"sample": 6, "update": 4, "log": 2}
    assert ledger.train_seconds() == 16
    again = Ledger("flops", 10)
    again.restore(ledger.state())
    assert again.train_phases == ledger.train_phases


def test_a_budget_of_seconds_refuses_when_time_is_up(clock):
    ledger = Ledger("seconds", 10)
    ledger.start()
    ledger.charge(flops(10**15))
    clock.now += 10
    assert ledger.exhausted
    assert not ledger.overdrawn
    clock.now += 1
    assert ledger.overdrawn
    with pytest.raises(BudgetExhausted):
        ledger.charge(flops(1))


def test_points_on_the_clock_are_met_by_looking_at_it(clock):
    seen = []
    ledger = Ledger("seconds", 10, (2.5, 5.0), seen.append)
    ledger.start()
    clock.now += 3
    ledger.look_at_clock()
    assert seen == [0]
    clock.now += 30
    ledger.look_at_clock()
    assert seen == [0, 1]


def test_looking_at_the_clock_means_nothing_to_a_counted_budget():
    seen = []
    ledger = Ledger("flops", 10, (5.0,), seen.append)
    ledger.charge(flops(5))
    ledger.look_at_clock()
    assert seen == []


def test_state_makes_a_round_trip(clock):
    ledger = Ledger("flops", 100, (25.0, 50.0), lambda _: None)
    ledger.start()
    ledger.charge({"a": Work(30, 31, 2, 3, 1)})
    ledger.book("evaluation", Work(4))
    ledger.commit()
    ledger.charge({"a": Work(1)})
    clock.now += 2
    other = Ledger("flops", 100, (25.0, 50.0), lambda _: None)
    other.restore(ledger.state())
    assert other.spent == ledger.spent
    assert other.phases == ledger.phases
    assert other.passed_points == 1
    assert other.discarded_flops == 1
    assert other.train_seconds() == 2
    other.charge({"a": Work(1)})
    assert ledger.phases["a"].flops == 31  # nothing is shared
