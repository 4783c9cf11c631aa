# SPDX-License-Identifier: Apache-2.0
from _helpers.loggers import AnyLogger, cluster_figures
from matplotlib.figure import Figure

from genmonitor.loggers.mlflow import MLflowBackend


class Client:
    def __init__(self):
        self.figures = []

    def log_figure(self, run_id, figure, artifact_file, *, save_kwargs=None):
        assert isinstance(figure, Figure)
        self.figures.append((run_id, artifact_file))


def test_figures_are_logged_under_the_run_by_file_name():
    client = Client()
    backend = MLflowBackend(AnyLogger(client, run_id="abc"))
    backend.log_figures(cluster_figures(), 4, None)
    backend.log_figures(cluster_figures(), 4, 2)
    assert client.figures == [("abc", "cms_cluster_map.png"), ("abc", "cms_cluster_map_epoch_0002_step_4.png")]


def test_handles_clients_of_loggers_that_name_a_run():
    assert MLflowBackend.handles(AnyLogger(run_id="abc"), Client())
    assert not MLflowBackend.handles(AnyLogger(), Client())
    assert not MLflowBackend.handles(AnyLogger(run_id="abc"), None)
