"""Divergences between the logits of a teacher and a student."""

from torch import Tensor


def kl_divergence(teacher: Tensor, student: Tensor, *, reverse: bool = False) -> Tensor:
    """Mean over examples of KL(teacher || student), in nats, temperature 1.

    Both sides stay in log space, so gradients are finite however far apart the logits are. The
    length-adaptive reference code minimises the reverse, KL(student || teacher) (``--parity``).

    Args:
        teacher: Logits, shape (B, labels); no gradient flows into them.
        student: Logits, shape (B, labels).
        reverse: Swap the two sides of the divergence.
    """
    log_teacher = teacher.detach().float().log_softmax(dim=-1)
    log_student = student.float().log_softmax(dim=-1)
    weight, difference = (
        (log_student.exp(), log_student - log_teacher)
        if reverse
        else (log_teacher.exp(), log_teacher - log_student)
    )
    return (weight * difference).sum(dim=-1).mean()
