# SPDX-License-Identifier: Apache-2.0
"""DiversityMonitor and DisagreementMonitor tell somebody which class collapsed."""

import pytest
import torch
from _helpers.modules import LIGHTNING_SAYS, digits, fit, loader
from _helpers.prompted import Changed, Prompted, disagreeing, labelled, plain

pytestmark = LIGHTNING_SAYS


class Drawing(Prompted):
    """Draws real digits of the class; from epoch 2 on all of class 4 are one zero."""

    def __init__(self):
        super().__init__()
        data = labelled(900, 1797).dataset
        self.images = [torch.stack([x for x, y in data if y == label]) for label in range(5)]

    def sample_prompts(self, labels):
        picks = torch.randint(10_000, (len(labels),)).tolist()
        of_label = zip(labels.tolist(), picks, strict=True)
        images = torch.stack([self.images[label][pick % len(self.images[label])] for label, pick in of_label])
        wrong = (labels == 4) & (self.current_epoch >= 2)
        return torch.where(wrong[:, None, None, None], self.images[0][0], images)

    def training_step(self, batch, index):
        return self.net.weight.square().sum()


def test_on_alert_is_told_of_a_class_that_lost_its_variety(tmp_path):
    told = []
    monitor = plain(n_samples=100, on_alert=told.append)
    with pytest.warns(UserWarning, match="Prompt '4' lost its variety"):
        fit(tmp_path, monitor, module=Drawing(), val=loader(digits(300, 500)), max_epochs=5)
    (text,) = told
    assert text.startswith("Prompt '4' lost its variety since epoch 2: spread 0 at epoch 3, ")
    assert text.endswith(" at epoch 0, its best (p < 0.0001).")


def test_on_alert_is_told_of_a_class_that_moved_away_from_the_data(tmp_path):
    told = []
    monitor = disagreeing(n_samples=200, on_alert=told.append)
    with pytest.warns(UserWarning, match="Prompt '4' moved away from the data"):
        fit(tmp_path, monitor, module=Drawing(), train=labelled(0, 900), val=labelled(0, 900), max_epochs=5)
    (text,) = told
    assert text.startswith("Prompt '4' moved away from the data since epoch 2: squared MMD ")


def test_nobody_is_told_of_a_model_that_moves_away_from_its_start(tmp_path):
    told = []
    monitor = disagreeing(n_samples=100, reference="start", real_images=digits(0, 200), on_alert=told.append)
    fit(tmp_path, monitor, module=Changed(prompt=3, epoch=1), val=loader(digits(300, 400)), max_epochs=4)
    assert told == []
