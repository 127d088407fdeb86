"""The table of a run that says how the engine runs."""

from pydantic import Field

from harness.config.parts import Section

__all__ = ["EngineConfig"]


class EngineConfig(Section):
    """How the engine runs; what changes numerics is part of the cell's key."""

    threads: int = Field(1, ge=1, description="torch threads")
    device: str = Field("cpu", min_length=1)
    micro_batch_tokens: int = Field(
        4096, ge=1, description="tokens of prompts and responses in one forward pass; changes memory, not results"
    )
    activations_gib: float = Field(
        0,
        ge=0,
        description="GiB that a micro-batch may keep for its backward pass, logits apart: the engine counts how many "
        "tokens that is, micro_batch_tokens at most; 0 for no such limit",
    )
    logits_mib: float = Field(
        64,
        gt=0,
        description="MiB of float32 logits that exist at one time; of more, the backward makes them again",
    )
    recompute: bool = Field(
        False, description="the backward pass makes each layer's activations again: less memory, a third more work"
    )
    routing_replay: bool = Field(
        False,
        description="of a mixture of experts: in the passes of the current policy during the updates of a rollout, its "
        "tokens go to the experts that the old policy chose (arXiv:2507.18071, section 5.3)",
    )
    processes: int = Field(
        1,
        ge=1,
        description="processes that share the run, a device each: rollouts by prompts, weights in shards (FSDP2); it "
        "divides the prompts of a minibatch",
    )
    checkpoint_every: int = Field(5, ge=1, description="iterations between checkpoints")
    sample_rows: int = Field(4, ge=0, description="responses an evaluation point writes to samples.jsonl")
