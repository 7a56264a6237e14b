"""Threads follow what a container grants, not what the machine has."""

import pytest

from services.config.cpus import cpu_quota


@pytest.fixture
def quota(tmp_path):
    def read(files, own="/"):
        membership = tmp_path / "membership"
        membership.write_text(f"1:cpu:/ignored\n0::{own}\n")
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return cpu_quota(tmp_path, membership)

    return read


def test_no_quota_is_none(quota):
    assert quota({}) is None
    assert quota({"cpu.max": "max 100000\n"}) is None
    assert quota({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}) is None


def test_whole_cpus_are_counted_and_there_is_always_one(quota):
    assert quota({"cpu.max": "250000 100000\n"}) == 2
    assert quota({"cpu.max": "50000 100000\n"}) == 1


def test_the_tightest_group_counts(quota):
    files = {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n", "cpu.max": "400000 100000\n"}
    assert quota(files, own="/a/b") == 3


def test_version_1_is_understood(quota):
    assert quota({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}) == 4
