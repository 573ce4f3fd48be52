"""AdamW, Lion and SGD with momentum: as many numbers of every parameter."""

from trainplan.costmodel.optimizers.base import Optimizer

ADAMW = Optimizer(
    name="adamw",
    says="2 moments: 2 m n",
    source="Loshchilov and Hutter, arXiv:1711.05101, algorithm 2",
    on_host=True,
)
LION = Optimizer(
    name="lion",
    says="1 moment: m n",
    source="Chen et al., arXiv:2302.06675, algorithm 2",
    moments=1,
)
SGD = Optimizer(
    name="sgd",
    says="momentum: m n",
    source="Sutskever et al., ICML 2013, section 2; torch.optim.SGD, momentum_buffer",
    moments=1,
)
