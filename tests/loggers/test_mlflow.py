# SPDX-License-Identifier: Apache-2.0
import io
import re

import numpy as np
import pytest
from _helpers.loggers import AnyLogger, both_namespaces, cluster_figures
from PIL import Image

from genmonitor.loggers import Loggers
from genmonitor.loggers.mlflow import MLflowBackend

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # of what MLflow imports


@pytest.fixture(autouse=True)
def in_files(monkeypatch):
    """Let MLflow keep a run in files, for which no server is needed."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def artifacts(logger, folder=None):
    """Return the artifacts of a run by their paths, each as the file that the client gives."""
    found = {}
    for file in logger.experiment.list_artifacts(logger.run_id, folder):
        if file.is_dir:
            found |= artifacts(logger, file.path)
        else:
            found[file.path] = logger.experiment.download_artifacts(logger.run_id, file.path)
    return found


@both_namespaces
def test_page_and_latest_figures_are_in_one_folder(namespace, tmp_path):
    logger = namespace.MLFlowLogger(tracking_uri=f"file:{tmp_path / 'runs'}")
    backend = MLflowBackend(logger)
    page = tmp_path / "report.html"
    for number in (1, 2):
        page.write_text(f"<p>{number}</p>")
        backend.log_figures(cluster_figures(), step=number, epoch=None)
        backend.log_page(page, step=number)
    found = artifacts(logger)
    assert sorted(found) == ["genmonitor/cms_cluster_map.png", "genmonitor/report.html"]
    with open(found["genmonitor/report.html"]) as logged:
        assert logged.read() == "<p>2</p>"
    with Image.open(found["genmonitor/cms_cluster_map.png"]) as logged:
        assert logged.size == (760, 600)


def test_figures_of_an_epoch_follow_the_trainers_step(tmp_path):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.MLFlowLogger(tracking_uri=f"file:{tmp_path / 'runs'}", prefix="run")
    for step in (4, 8):
        MLflowBackend(logger).log_figures(cluster_figures(), step, epoch=step // 4)
    pictures = {path: file for path, file in artifacts(logger).items() if path.endswith(".png")}
    # MLflow writes all that it knows of a picture into its name
    named = re.compile(r"images/run-cms\Wcluster_map\Wstep\W(\d+)\W")
    assert sorted(int(named.match(path)[1]) for path in pictures) == [4, 8]
    (kept,) = cluster_figures().values()
    for file in pictures.values():
        with Image.open(file) as logged, Image.open(io.BytesIO(kept)) as drawn:
            assert np.array_equal(logged.convert("RGB"), drawn.convert("RGB"))


def test_settings_are_parameters_of_the_run(tmp_path):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.MLFlowLogger(tracking_uri=f"file:{tmp_path / 'runs'}")
    for _ in range(2):  # a second fit
        MLflowBackend(logger).log_settings("cms", {"n_samples": 200, "kernel": None, "prompts": ["x" * 9000]})
    params = logger.experiment.get_run(logger.run_id).data.params
    assert (params["cms/n_samples"], params["cms/kernel"], len(params["cms/prompts"])) == ("200", "None", 500)


def test_finding_is_a_tag_of_the_run(tmp_path):
    import lightning.pytorch.loggers

    logger = lightning.pytorch.loggers.MLFlowLogger(tracking_uri=f"file:{tmp_path / 'runs'}")
    Loggers([logger]).each(lambda x: x.log_finding("cms/finding", "cluster_1 differs", 3))
    assert logger.experiment.get_run(logger.run_id).data.tags["cms/finding"] == "cluster_1 differs"


def test_handles_clients_of_loggers_that_name_a_run(tmp_path):
    client = mlflow.MlflowClient(f"file:{tmp_path}")
    assert MLflowBackend.handles(AnyLogger(run_id="abc"), client)
    assert not MLflowBackend.handles(AnyLogger(), client)
    assert not MLflowBackend.handles(AnyLogger(run_id="abc"), None)
