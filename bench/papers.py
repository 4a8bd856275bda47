"""Kernel counts as the papers print them, to stand beside those counted here.

Only the ratio of stitched kernels to XLA's is comparable: the papers ran other models of the same kind, in TensorFlow,
on a Pascal GPU (2018) and V100 GPUs (2019, 2021), with the XLA of their day.
"""

from __future__ import annotations

from dataclasses import dataclass

OF_2018 = "Long et al. 2018 (arXiv 1811.05213), section 6.3"
OF_2019 = "Long et al. 2019 (arXiv 1911.11576), table 3"
OF_2021 = "Zheng et al. 2021 (arXiv 2009.10924), table 2"


@dataclass(frozen=True, slots=True)
class Figure:
    """What a paper found for a workload of this kind."""

    ratio: float
    """Kernels with FusionStitching over kernels with XLA, library calls left out where the paper leaves them out."""
    source: str
    counts: tuple[int, int] | None = None
    """Memory-intensive kernels of XLA and of FusionStitching, where the paper gives counts."""


def _counted(xla: int, stitched: int) -> Figure:
    return Figure(stitched / xla, OF_2021, (xla, stitched))


def _compressed(xla: float, stitched: float) -> Figure:
    """From the columns xla/tf-kernel and fs/tf-kernel: TensorFlow's kernels (all of them) over each."""
    return Figure(xla / stitched, OF_2019)


FIGURES: dict[str, tuple[Figure, ...]] = {
    "bert_training": (_counted(200, 98),),
    "bert_inference": (_counted(277, 77),),
    "dien_training": (_counted(6842, 2109),),
    "dien_inference": (_counted(2585, 815),),
    "transformer_training": (_counted(903, 423),),
    "asr_inference": (_counted(386, 187),),
    "crnn_inference": (_counted(993, 311),),
    "nmt_inference": (_compressed(1.65, 3.25),),
    "multi_interest": (_compressed(1.63, 2.27),),
    "speech_training": (Figure(0.25, OF_2018), _compressed(1.3, 13.5)),
    "dialogue_generation": (_compressed(2.6, 5.7),),
    "logistic_regression": (_compressed(1.5, 4.6),),
    "word2vec": (Figure(0.82, OF_2018), _compressed(2.9, 4.9)),
    "bidirectional_rnn": (_compressed(2.8, 6.8),),
    "dynamic_rnn": (_compressed(3.2, 7.8),),
    "perceptron": (_compressed(1.1, 1.3),),
    "variational_auto_encoder": (_compressed(1.5, 1.9),),
}
"""By workload; none for those of which the papers show a figure without numbers (2018: LR, RNN, BiRNN, NMT)."""

MEAN_2021 = 0.38
"""Memory-intensive kernel calls of FusionStitching over XLA's, in average (2021 paper, section 7.3)."""
GOAL = 0.30
"""What this project aims at, in geometric mean."""
