"""Fixed penalty on KL(pi_theta || pi_ref), the frozen start (Shao et al. 2024, GRPO, arXiv:2402.03300, eq. 3-4).

    loss + coef * mean_t (pi_theta / pi_old) * k3_t,   k3 = pi_ref/pi_theta - 1 - log(pi_ref/pi_theta)

Differs from the paper's bare k3: responses come from pi_old, so k3 alone has the gradient of the reversed divergence;
times the differentiable ratio its gradient is that of KL(pi_theta || pi_ref) token by token (arXiv:2512.21852).
``fixed_penalty`` with anchor "reference" and direction "reverse" under its usual name and coefficient.
Default coef 0.04: section 4.2 of the paper. Costs one reference forward pass a rollout.
"""

from dataclasses import dataclass

from objectives.trust_region.fixed_penalty import FixedPenalty
from objectives.trust_region.measured import Anchor, Direction


@dataclass(frozen=True)
class ReferencePenalty(FixedPenalty):
    """Penalise the distance to the reference policy."""

    anchor: Anchor = "reference"
    direction: Direction = "reverse"
    coef: float = 0.04
