import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def threads():
    """An engine sets the threads of the process; what a test set does not outlive its module."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
