"""The verifier refuses planted faults, and no kernel as it is made."""

from __future__ import annotations

import pytest

from jax_stitch.kernel.verify import verify
from tests.kernel import programs
from tests.kernel.faults import PLANTED


@pytest.mark.every_case
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_refused(name: str) -> None:
    planted = PLANTED[name]
    good = programs.kernels(planted.program, planted.device)[0]
    assert not verify(good)
    assert verify(planted.plant(good)), name


@pytest.mark.parametrize("device", programs.DEVICES)
@pytest.mark.parametrize("name", programs.NAMES)
def test_kernels_of_each_kind_are_let_pass(name: str, device: str) -> None:
    for kernel in programs.kernels(name, device):
        assert not verify(kernel), "\n".join(map(str, verify(kernel)))


@pytest.mark.parametrize("name", ["softmax", "scale_gradient", "cross_entropy"])
def test_kernels_of_clusters_are_let_pass(name: str) -> None:
    for kernel in programs.cluster_kernels(name):
        assert not verify(kernel), "\n".join(map(str, verify(kernel)))


@pytest.mark.parametrize("seed", range(30))
def test_kernels_of_random_programs_are_let_pass(seed: int) -> None:
    for device in programs.DEVICES:
        for kernel in programs.random_kernels(seed, device):
            assert not verify(kernel), "\n".join(map(str, verify(kernel)))
