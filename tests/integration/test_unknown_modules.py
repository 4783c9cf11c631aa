# SPDX-License-Identifier: Apache-2.0
"""Monitors on modules that were written without them in mind."""

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, Kept, Linear, digits, fit, loader, measured, plain
from torch import nn

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:Plain.{1,4}(there is no validation data|the baseline|only)"),
]


class Compiled(Linear):
    """Its network is compiled; a graph per shape and mode is what compiling costs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.graphs = Kept()
        self.net = torch.compile(nn.Linear(4, 64), backend=self.count)

    def count(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward


@pytest.mark.slow
def test_compiled_module_is_evaluated_and_compiled_no_more(tmp_path):
    torch._dynamo.reset()
    histories, graphs = [], []
    for kind in (Linear, Compiled):
        torch.manual_seed(0)
        module = kind()
        if kind is Linear:
            torch.manual_seed(0)
            module.net = nn.Linear(4, 64)
        monitor = plain()
        for epochs in (2, 5):
            torch.manual_seed(1)
            fit(tmp_path, monitor, module=module, val=loader(digits(300, 400)), max_epochs=epochs)
            graphs.append(len(getattr(module, "graphs", [])))
        histories.append([record["image"] for record in measured(monitor)])
    assert histories[0] == pytest.approx(histories[1], rel=1e-5)
    assert 0 < graphs[2] == graphs[3] <= 6


class Lazy(Linear):
    """Takes its sizes from the first batch."""

    def __init__(self, part):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 64), part)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature", "ignore:.*an evaluation changed the training")
@pytest.mark.filterwarnings("ignore:A layer with UninitializedParameter", "ignore:.*uninitialized parameters")
@pytest.mark.filterwarnings("ignore:.*lazy layers took their initial weights")
@pytest.mark.parametrize("fresh", [nn.LazyBatchNorm1d, lambda: nn.LazyLinear(64)], ids=["LazyBatchNorm", "LazyLinear"])
def test_lazy_module_that_trains_alone_trains_with_a_monitor(tmp_path, fresh):
    outcomes = []
    for monitors in ([], [plain()]):
        part = fresh()
        torch.manual_seed(0)
        _, module = fit(tmp_path, *monitors, module=Lazy(part), val=loader(digits(300, 400)))
        outcomes.append([x.clone() for x in module.state_dict().values()])
    assert len(monitors[0].history) == 2
    assert any("Lazy layers took their initial weights" in note["text"] for note in monitors[0].publisher.notes.items)
    assert [x.shape for x in outcomes[0]] == [x.shape for x in outcomes[1]]
    if fresh is nn.LazyBatchNorm1d:  # its first values are no random numbers
        assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
