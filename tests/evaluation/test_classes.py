# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import torch
from _helpers.evaluations import halves
from torch.utils.data import Dataset, TensorDataset

from genmonitor import PixelPartition, compare
from genmonitor.evaluation import ImageSet, RegionEvaluator, RegionSettings, Samples, SingleProcess
from genmonitor.evaluation.classes import NO_LABELS, P_CLASS, ClassResult, class_finding, compare_classes
from genmonitor.evaluation.evaluator import commit_evaluation
from genmonitor.functional import two_sample_test_by_class
from genmonitor.images.prompts import Prompts

REAL, FAKE = halves(600, 1), halves(300, 2)
OF_REAL, OF_FAKE = (torch.arange(n) % 5 for n in (600, 300))
SIDES = PixelPartition.grid((4, 6), 1, 2)


def faded(fake, which, by=0.4):
    """Take contrast from the images of one class."""
    out, mean = fake.clone(), fake.mean((1, 2, 3), keepdim=True)
    out[which] = (mean + by * (fake - mean))[which]
    return out


@pytest.fixture(scope="module")
def one_wrong():
    return compare(
        real=REAL,
        fake=faded(FAKE, OF_FAKE == 3),
        settings=RegionSettings(partition=SIDES),
        real_labels=OF_REAL,
        fake_labels=OF_FAKE.tolist(),
    )


def test_the_wrong_class_is_named_with_its_fault_and_the_others_are_not(one_wrong):
    assert one_wrong.finding.startswith("Class 3: contrast − ")
    assert "p = 0.001). No evidence of a difference in the other 4 classes (smallest p = " in one_wrong.finding
    assert [x.differs for x in one_wrong.classes] == [False, False, False, True, False]
    first = one_wrong.findings[0]
    assert first.kinds[0].name == "faded"
    assert abs(first.kinds[0].strength) == pytest.approx(0.6, abs=0.1)
    assert set(OF_FAKE[list(first.samples)].tolist()) == {3}


def test_p_values_are_those_of_the_function(one_wrong):
    found = two_sample_test_by_class(faded(FAKE, OF_FAKE == 3), REAL, OF_FAKE, OF_REAL)
    assert [x.p for x in one_wrong.classes] == [float(p) for p in found.values()]
    assert one_wrong.values["p_class"] == min(x.p for x in one_wrong.classes)
    assert "p_class" in [spec.key for spec in one_wrong.specs]


def test_every_door_shows_the_classes(one_wrong):
    said = one_wrong.to_dict()
    assert json.loads(json.dumps(said)) == said
    assert next(iter(said["classes"])) == "3"
    assert "against real images of the class" in str(one_wrong)


def test_real_images_differ_in_no_class():
    found = compare(
        real=REAL, fake=FAKE, settings=RegionSettings(partition=SIDES), real_labels=OF_REAL, fake_labels=OF_FAKE
    )
    assert str(found.findings[1]).startswith("No evidence of a difference in any class (smallest p = ")
    assert found.finding.startswith("No evidence of a difference from real images in any region")


def test_a_fault_of_every_class_is_said_of_the_image_first():
    everywhere = torch.ones(300, dtype=torch.bool)
    found = compare(
        real=REAL,
        fake=faded(FAKE, everywhere),
        settings=RegionSettings(partition=SIDES),
        real_labels=OF_REAL,
        fake_labels=OF_FAKE,
    )
    assert not found.finding.startswith("Class ")
    assert str(found.findings[1]).startswith("Class ")
    assert "; and 2 more." in str(found.findings[1])


def test_labels_may_be_strings_and_classes_too_small_are_said():
    names = ["cat", "dog", "ant"]
    fake_labels = [names[i % 2] for i in range(295)] + ["ant"] * 5
    found = compare_classes(ImageSet(FAKE), ImageSet(REAL), fake_labels, [names[i % 3] for i in range(600)])
    assert [(x.label, x.n_fake, x.n_real, x.p is None) for x in found] == [
        ("ant", 5, 200, True),
        ("cat", 148, 200, False),
        ("dog", 147, 200, False),
    ]
    assert str(class_finding(found)).endswith("Too few images of 1 class for a test: it needs 8 on each side.")


def test_at_most_500_of_a_class_are_looked_at():
    many = torch.rand(700, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    (found,) = compare_classes(ImageSet(many[:90]), ImageSet(many[90:]), [1] * 90, [1] * 610)
    assert (found.n_fake, found.n_real) == (90, 500)


def test_a_few_classes_are_named_the_surest_first():
    results = [ClassResult(label, 50, 50, 0.03 - 0.001 * label) for label in range(5)] + [ClassResult(5, 50, 50, 0.3)]
    assert str(class_finding(results)) == (
        "Class 4: unlike real images (p = 0.026); class 3: unlike real images (p = 0.027); class 2: unlike real images "
        "(p = 0.028); and 2 more. No evidence of a difference in the other class (p = 0.3)."
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"fake_labels": OF_FAKE}, "together, of one generated set, but got labels of one side"),
        ({"fake_labels": OF_FAKE, "real_labels": OF_FAKE}, "Expected `real_labels` to hold a label for each of 600"),
        ({"fake_labels": ["a"] * 300, "real_labels": OF_REAL}, "labels of one kind"),
        ({"fake_labels": [1] * 300, "real_labels": [2] * 600}, "Expected a class with at least 8 samples in both"),
        ({"fake_labels": OF_FAKE, "real_labels": OF_REAL, "other": FAKE}, "but got two generated sets"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        compare(real=REAL, fake=FAKE, settings=RegionSettings(partition=SIDES), **labels)


def along_a_training(data, prompts, *sets):
    """Evaluate sets of images, image i of prompt i modulo their number, in a run; return what `fit` said and each."""
    settings = RegionSettings(partition=SIDES, n_samples=300)
    evaluator = RegionEvaluator(settings, prompts=Prompts(prompts))
    report = evaluator.fit(ImageSet(data), FAKE[:16], SingleProcess())
    evaluator.is_last = True  # so that each evaluation has a diagnosis
    history, out = [], []
    for images in sets:
        evaluator.update(Samples(images, torch.arange(300)))
        evaluation = evaluator.compute(SingleProcess())
        history.append({"epoch": float(len(history)), **evaluation.values})
        commit_evaluation(evaluator, evaluation, history, SingleProcess())
        out.append((evaluation, evaluator.findings(evaluation, history)))
    return evaluator, report, out


def test_during_training_the_wrong_class_is_said_first_with_a_curve_and_a_table():
    data = TensorDataset(REAL, OF_REAL + 1)
    wrong = faded(FAKE, OF_FAKE == 3)
    evaluator, report, [before, *_, after] = along_a_training(data, range(1, 6), FAKE, wrong, wrong)
    assert NO_LABELS not in report.messages
    assert before[0].values["p_class"] > 0.05
    assert after[0].values["p_class"] == 0.001
    assert P_CLASS in evaluator.values()
    assert not any(str(x).startswith("Class") for x in before[1])
    first = after[1][0]
    assert first.text.startswith("Class 4: contrast − ")
    assert first.text.endswith("Since epoch 1.")
    assert set(OF_FAKE[list(first.samples)].tolist()) == {3}
    table = evaluator.presenter().tables(after[0])["classes"]
    assert next(row[0] for row in table.rows) == "4"
    assert evaluator.presenter().tables(before[0])["classes"].columns[0] == "class"


def test_during_training_classes_are_not_diagnosed_one_by_one_where_most_differ():
    _, _, [(evaluation, findings)] = along_a_training(TensorDataset(REAL, OF_REAL), range(5), 0.5 * FAKE)
    assert all(x.found is None for x in evaluation.classes)
    assert findings[0].kinds
    assert str(findings[1]).startswith("Class 0: unlike real images (p = 0.001); class 1: ")


def test_during_training_prompts_may_be_words_and_other_real_images_are_left_out():
    names = ["shoe", "shirt", "bag", "boot", "coat"]

    class Captioned(Dataset):
        def __len__(self):
            return 600

        def __getitem__(self, i):
            return {"image": REAL[i], "caption": names[i % 5]}

    wrong = faded(FAKE, torch.arange(300) % 3 == 2)
    _, _, [(evaluation, findings)] = along_a_training(Captioned(), names[:3], wrong)
    assert [x.label for x in evaluation.classes] == ["bag", "shirt", "shoe"]
    assert findings[0].text.startswith("Class bag: ")


@pytest.mark.parametrize("data", [REAL, TensorDataset(REAL, OF_REAL + 100)])
def test_real_images_without_labels_of_the_prompts_are_spoken_of_and_nothing_is_tested(data):
    evaluator, report, [(evaluation, _)] = along_a_training(data, range(5), FAKE)
    assert NO_LABELS in report.messages
    assert "p_class" not in evaluation.values
    assert P_CLASS not in evaluator.values()
    assert evaluator.presenter().tables(evaluation) == {}
