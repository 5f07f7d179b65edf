"""The roofline on ceilings that are given."""

from __future__ import annotations

import pytest

from forwardpass.graph.graph import Role
from forwardpass.work.count import PassWork, Work, no_work
from forwardpass.work.machine import Ceilings, Machine, cpu_name
from forwardpass.work.predict import Bound, Prediction, predict, predict_pass

CEILINGS = Ceilings(read_rate=100.0, flop_rate=1_000.0)


@pytest.mark.parametrize(
    ("work", "seconds", "bound"),
    [
        (Work(flop=1_000, weight_bytes=300), 3.0, Bound.READING),
        (Work(flop=1_000, weight_bytes=50, cache_read=30, cache_written=20), 1.0, Bound.READING),
        (Work(flop=1_001, weight_bytes=50, cache_read=30, cache_written=20), 1.001, Bound.PRODUCTS),
        (Work(flop=5_000), 5.0, Bound.PRODUCTS),
        (Work(activation_bytes=10**9), 0.0, None),
    ],
)
def test_the_slower_of_reading_and_products_sets_the_time(
    work: Work, seconds: float, bound: Bound | None
) -> None:
    assert predict(work, CEILINGS) == Prediction(seconds, bound)


def passed(reading: int, products: int) -> PassWork:
    """A pass that reads for so many seconds in one role and multiplies in another."""
    return PassWork(
        {
            **no_work().by_role,
            Role.HEAD: Work(weight_bytes=100 * reading),
            Role.MLP_UP: Work(flop=1_000 * products),
        }
    )


@pytest.mark.parametrize(
    ("reading", "products", "bounds"),
    [
        (8, 2, (Bound.READING,)),
        (7, 3, (Bound.READING, Bound.PRODUCTS)),
        (3, 7, (Bound.PRODUCTS, Bound.READING)),
        (2, 8, (Bound.PRODUCTS,)),
    ],
)
def test_a_pass_names_what_sets_its_pace_by_its_share_of_the_time(
    reading: int, products: int, bounds: tuple[Bound, ...]
) -> None:
    predicted = predict_pass(passed(reading, products), CEILINGS)
    assert predicted.seconds == reading + products
    assert predicted.seconds_by(Bound.READING) == reading
    assert predicted.bounds == bounds


def test_a_machine_lists_what_its_figures_depend_on() -> None:
    machine = Machine("a processor", 4, 2, 1.5, CEILINGS, 60.0, "a guess")
    assert machine.as_dict() == {
        "cpu": "a processor",
        "cores": 4,
        "threads": 2,
        "load": 1.5,
        "bytes_per_second": 100.0,
        "bytes_per_second_one_thread": 60.0,
        "flop_per_second": 1_000.0,
        "source": "a guess",
    }


def test_the_processor_has_a_name() -> None:
    assert cpu_name().strip()
