from __future__ import annotations

import pytest

from forwardpass.errors import RequestError
from forwardpass.work.layout import WIDTH
from forwardpass.work.machines import (
    Known,
    amount,
    known_machines,
    listed,
    machine,
    quantity,
    split_machines,
)

# What the vendors' data sheets say of one device: bytes, bytes a second, FLOP a second.
STATED = {
    "h100": (80e9, 3.35e12, 989e12),
    "h200": (141e9, 4.8e12, 989e12),
    "b200": (180e9, 8e12, 2250e12),
    "a100": (80e9, 2.039e12, 312e12),
    "l40s": (48e9, 864e9, 362.05e12),
    "rtx-4090": (24e9, 1008e9, 165.2e12),
    "rtx-3090": (24e9, 936e9, 71e12),
    "mi300x": (192e9, 5.3e12, 1307.4e12),
    "m1-max": (64e9, 400e9, 10.4e12),
    "m4-max": (128e9, 546e9, None),
    "epyc-9654": (None, 460.8e9, 96 * 2.4e9 * 32),
    "xeon-8480+": (None, 307.2e9, 56 * 2e9 * 1024),
}


@pytest.mark.parametrize("name", STATED)
def test_the_catalogue_says_what_the_vendor_says(name: str) -> None:
    found = machine(name)
    assert (found.memory, found.read_rate, found.flop_rate) == STATED[name]


def test_every_family_that_people_ask_for_is_there() -> None:
    names = {known.name for known in known_machines()}
    assert {f"m{i}" for i in range(1, 5)} <= names
    assert {f"m{i}-{size}" for i in range(1, 4) for size in ("pro", "max", "ultra")} <= names
    assert set(STATED) <= names
    assert any(name.startswith("xeon") for name in names)


def test_every_entry_is_whole_and_has_a_name_of_its_own() -> None:
    names: list[str] = []
    for known in known_machines():
        names += {machine(name).name for name in (known.name, known.title, *known.also)}
        assert known.figures == "vendor"
        assert known.source
        assert known.read_rate is not None
        assert 1e10 < known.read_rate < 1e13
        assert known.flop_rate is None or 1e12 < known.flop_rate < 1e16
        assert known.memory is None or 8e9 <= known.memory < 1e12
        # A pass of one token is bound by reading on all of them: else a digit slipped.
        assert known.flop_rate is None or known.flop_rate / known.read_rate > 10
    assert len(names) == len(set(names)) == len(known_machines())


def test_the_list_names_sources_and_whose_figures_they_are() -> None:
    lines = listed(known_machines())
    assert all(len(line) <= WIDTH for line in lines)
    for known in known_machines():
        assert known.source in lines
        (row,) = [line for line in lines if line.startswith(f"  {known.name} ")]
        assert row.endswith(" vendor")
    assert any("80 GB" in row and "989 TFLOP/s" in row and "3.35 TB/s" in row for row in lines)


@pytest.mark.parametrize("name", ["H100", "h100-sxm", "H100 SXM", " h_100 ", "h 100"])
def test_case_blanks_and_dashes_of_a_name_do_not_matter(name: str) -> None:
    assert machine(name).name == "h100"


@pytest.mark.parametrize("text", ["2xh100", "2 x H100", "2×h100", "2*h100"])
def test_several_devices_add_up(text: str) -> None:
    found = machine(text)
    assert (found.label, found.count) == ("2xh100", 2)
    assert found.memory_together == 160e9
    assert found.read_rate_together == 6.7e12
    assert found.flop_rate_together == 1978e12


def test_a_machine_can_be_described() -> None:
    found = machine("80GB,3.35TB/s,989TFLOP/s")
    assert found == Known(
        "80GB,3.35TB/s,989TFLOP/s",
        "described machine",
        *(80e9, 3.35e12, 989e12),
        flop_type="",
        figures="given",
        source="as given",
    )
    turned = machine("2x989 TFLOPS, 3.35 TB/s, 80 GB")
    assert (turned.count, turned.memory, turned.flop_rate) == (2, 80e9, 989e12)
    alone = machine("1.5TB/s")
    assert (alone.memory, alone.read_rate, alone.flop_rate) == (None, 1.5e12, None)


def test_a_known_machine_can_have_another_memory() -> None:
    found = machine("m4-max,48GB,30TFLOP/s")
    assert (found.memory, found.read_rate, found.flop_rate) == (48e9, 546e9, 30e12)
    assert found.label == "m4-max,48GB,30TFLOP/s"
    assert machine(found.label) == found
    assert found.figures == "vendor, in part given"
    assert found.source.endswith("48GB, 30TFLOP/s as given")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("80GB", "memory", 80e9),
        ("80 GiB", "memory", 80 * 2**30),
        ("512B", "memory", 512),
        ("1.5TB", "memory", 1.5e12),
        ("900GB/s", "read_rate", 900e9),
        ("90TFLOP/s", "flop_rate", 90e12),
        ("1PFLOPS", "flop_rate", 1e15),
    ],
)
def test_amounts_are_read_with_their_units(text: str, field: str, value: float) -> None:
    assert quantity(text) == (field, value)


@pytest.mark.parametrize("text", ["", "h100", "80", "80Gb", "80GB/h", "1e3GB", "-1GB", "GB", "٣GB"])
def test_what_is_no_amount_is_none(text: str) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("h10", 'there is no machine "h10"  (did you mean h100?)'),
        ("rtx4080", 'there is no machine "rtx4080"'),
        ("", 'there is no machine ""'),
        ("2x", 'there is no machine "2x"'),
        ("0xh100", "wanted 1 to 1,024 devices"),
        ("2000xh100", "wanted 1 to 1,024 devices"),
        ("2x2xh100", 'there is no machine "2xh100"'),
        ("h100,fast", '"fast" is no memory and no rate of a machine'),
        ("h100,a100", '"a100" is no memory and no rate of a machine'),
        ("80GB,3TB/s,81GB", "says twice what one thing is: 81GB"),
        ("0GB,1TB/s", '"0GB": a machine needs more than nothing'),
        ("x" * 100_000, "there is no machine"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        machine(text)
    assert says in refused.value.fact
    assert len(refused.value.fact) < 200


def test_an_unknown_name_tells_how_to_find_one() -> None:
    with pytest.raises(RequestError) as refused:
        machine("tpu")
    assert refused.value.advice == "forwardpass machine --list shows those that are known"
    assert "80GB,3.35TB/s,989TFLOP/s" in refused.value.details[0]


def test_in_a_list_amounts_belong_to_the_machine_before_them() -> None:
    text = "h100, m4-max,48GB,2x80GB,3.35TB/s,989TFLOP/s,24GB,1TB/s,here"
    assert split_machines(text) == [
        "h100",
        "m4-max,48GB",
        "2x80GB,3.35TB/s,989TFLOP/s",
        "24GB,1TB/s",
        "here",
    ]


def test_amounts_are_written_without_idle_zeros() -> None:
    assert amount(80e9, "B") == "80 GB"
    assert amount(2.039e12, "B/s") == "2.039 TB/s"
    assert amount(1307.4e12, "FLOP/s") == "1.3074 PFLOP/s"
    assert amount(14.2837e9, "B/s", 3) == "14.3 GB/s"
    assert amount(100e9, "B", 2) == "100 GB"
