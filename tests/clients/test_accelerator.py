import pytest
import torch

from clients.accelerator import gpu_name, torch_device
from clients.settings import AUTO, CPU, CUDA, TrainingSettings
from clients.training.train import evaluate, train
from fl_core.data.datasets import load_dataset
from fl_core.models.build import build_model

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture
def there_is_a_gpu(monkeypatch):
    """Let PyTorch say so, and record what it is asked about determinism."""
    calls = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *a, **k: calls.append((a, k)))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    return calls


@pytest.mark.parametrize(("name", "expected"), [(AUTO, CUDA), (CUDA, CUDA), (CPU, CPU)])
def test_with_a_gpu_only_cpu_does_without(there_is_a_gpu, monkeypatch, name, expected):
    assert torch_device(name).type == expected
    assert bool(there_is_a_gpu) == (expected == CUDA)  # deterministic kernels are asked for
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"the {device.type}")
    assert gpu_name(name) == ("the cuda" if expected == CUDA else None)


def test_without_a_gpu_auto_is_the_cpu_and_cuda_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_device(AUTO).type == torch_device(CPU).type == CPU
    with pytest.raises(ValueError, match=r'device is "cuda", but .* set device to auto or cpu'):
        torch_device(CUDA)


def digits(count=96):
    dataset = load_dataset("mnist-5k")
    return dataset.train_samples[:count], dataset.train_labels[:count]


@needs_gpu
def test_a_gpu_trains_to_the_same_model_within_rounding():
    images, labels = digits()
    found = []
    for name in (CPU, CUDA, CUDA):
        device = torch_device(name)
        model = build_model("mlp", (1, 28, 28), 10, seed=0).to(device)
        here = images.to(device), labels.to(device)
        loss = train(model, *here, TrainingSettings(), torch.Generator().manual_seed(0))
        weights = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
        found.append((loss, weights, evaluate(model, *here)))
    (loss, weights, scores), (gpu_loss, gpu_weights, gpu_scores), (_, again, _) = found
    assert gpu_loss == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(gpu_weights, weights, atol=1e-4, rtol=0)
    assert gpu_scores.accuracy == pytest.approx(scores.accuracy, abs=0.03)
    assert torch.equal(gpu_weights, again)
