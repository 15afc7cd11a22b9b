"""Runs the fused kernels in Triton's interpreter and prints one JSON line a case; started by test_interpreter.py.

A process of its own, because TRITON_INTERPRET counts when Triton is imported.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from functools import partial as bind
from typing import Any

import torch
from fused_oracle import NAMES, against_recurrence, error, inputs, recurrence, same_keys, strike
from torch.autograd import forward_ad

from kdaprof.kda.fused import check, fused_kda, fused_kda_op, plan
from kdaprof.kda.fused.config import SAFE

against_reference = bind(against_recurrence, fused_kda)


def later_tokens_change_nothing() -> dict[str, object]:
    """Perturb every input at token t; outputs before t must be the same bits."""
    made = inputs((1, 20, 1, 16, 16), -5.0, 0.0, torch.float32)
    args = [made[name] for name in NAMES[:5]]
    before, _ = fused_kda(*args, scale=1.0)
    leaks = []
    for t in (1, 8, 15, 16, 19):
        for index in range(5):
            changed = [x.clone() for x in args]
            changed[index][:, t] = changed[index][:, t] * 0.5 - 0.25
            after, _ = fused_kda(*changed, scale=1.0)
            if not torch.equal(before[:, :t], after[:, :t]):
                leaks.append((t, NAMES[index]))
            if torch.equal(before[:, t:], after[:, t:]):
                leaks.append((t, NAMES[index], "no effect"))
    return {"leaks": leaks}


def views() -> dict[str, object]:
    """Transposed inputs and views at an odd offset equal contiguous ones, values and gradients."""
    made = inputs((2, 18, 1, 16, 32), -0.1, 0.0, torch.float32)
    plain = [made[name].clone().requires_grad_() for name in NAMES[:5]]
    odd = []
    for x in plain:
        shifted = torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x.detach())
        odd.append(shifted.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_())
    results = []
    for args in (plain, odd):
        o, _ = fused_kda(*args, scale=0.5)
        results.append((o, *torch.autograd.grad(o.square().sum(), args)))
    return {
        "equal": all(torch.equal(a, b) for a, b in zip(*results, strict=True)),
        "contiguous": odd[0].is_contiguous(),
    }


def empty() -> dict[str, object]:
    out: dict[str, object] = {}
    for name, shape in {"B": (0, 20, 2, 16, 32), "T": (2, 0, 2, 16, 32)}.items():
        made = inputs(shape, -0.1, 0.0, torch.float32)
        leaves = [made[n].requires_grad_() for n in NAMES]
        o, ht = fused_kda(*leaves[:5], scale=1.0, initial_state=leaves[5], output_final_state=True)
        grads = torch.autograd.grad(o.sum() + (ht * 3).sum(), leaves)
        out[name] = {
            "shapes": [list(x.shape) for x in (o, ht)],
            "state_kept": torch.equal(ht, leaves[5]),
            "zero": all(bool((x == 0).all()) for x in grads[:5]),
            "dh0": bool((grads[5] == 3).all()),
        }
        ht = fused_kda(*leaves[:5], scale=1.0, output_final_state=True)[1]
        out[name]["zero_state"] = bool((ht == 0).all())
    return out


def partial() -> dict[str, object]:
    """Only some inputs require gradients; only the final state is used; a second derivative is refused."""
    made = inputs((1, 20, 1, 16, 16), -0.1, 0.0, torch.float32)
    k = made["k"].requires_grad_()
    args = [made[n] for n in NAMES[:5]]
    o, ht = fused_kda(*args, scale=1.0, output_final_state=True)
    all_of_it = torch.autograd.grad(ht.sum(), k)[0]
    wide = [x.detach().double() for x in args]
    wide[1].requires_grad_()
    _, rht = recurrence(*wide, scale=1.0)
    want = torch.autograd.grad(rht.sum(), wide[1])[0]
    o, _ = fused_kda(*args, scale=1.0)
    grad = torch.autograd.grad(o.square().sum(), k, create_graph=True)[0]
    try:
        grad.sum().backward()
        second = "no error"
    except RuntimeError as raised:
        second = str(raised)
    return {"error": error(all_of_it, want), "second": second}


def undifferentiated() -> dict[str, object]:
    """Without gradients a call goes past autograd: the same bits; other ways to differentiate are refused."""
    made = inputs((1, 20, 1, 16, 16), -0.1, 0.0, torch.float32)
    args = [made[n] for n in NAMES[:5]]
    state = {"initial_state": made["h0"], "output_final_state": True, "scale": 1.0}
    leaves = [x.clone().requires_grad_() for x in args]
    seen = fused_kda(*leaves, **state)
    with torch.no_grad():
        unseen = fused_kda(*leaves, **state)
    calls = {"constants": fused_kda(*args, **state), "no_grad": unseen}
    wanted = fused_kda(*args, **{**state, "initial_state": made["h0"].clone().requires_grad_()})

    def dual() -> None:
        with forward_ad.dual_level():
            fused_kda(forward_ad.make_dual(args[0], args[0]), *args[1:], scale=1.0)

    def transformed() -> None:
        torch.func.vmap(lambda q: fused_kda(q, *args[1:], scale=1.0)[0])(args[0][None])

    refused = {}
    for name, call in (("dual", dual), ("vmap", transformed)):
        try:
            call()
            refused[name] = "no error"
        except (NotImplementedError, RuntimeError) as raised:
            refused[name] = str(raised)
    return {
        "same": {name: all(map(torch.equal, got, seen)) for name, got in calls.items()},
        "graphs": {name: any(x.requires_grad for x in got) for name, got in calls.items()},
        "through h0": [x.requires_grad for x in wanted],
        "refused": refused,
    }


def self_check() -> dict[str, object]:
    """The first call's check passes the kernels as they are, and fails them against a recurrence one per cent off."""
    device, said = torch.device("cpu"), []
    full, half = torch.float32, torch.bfloat16
    for dtypes, home in (
        ((full, full, full, full, full, None), True),
        ((half, half, half, half, half, None), False),
        ((full, full, half, full, half, None), False),  # as autocast hands them over
        ((full, full, full, full, full, full), False),
    ):
        kind = (device, dtypes, 16, 16)
        state = dtypes[5] is not None
        forward = plan.forward_plan(SAFE[16], *kind, state, "tf32x3")
        backward = plan.backward_plan(SAFE[16], *kind, state, home, "tf32x3")
        said.append(check.check_forward(forward, *kind, state, "tf32x3"))
        said.append(check.check_backward(backward, forward, *kind, state, home, "tf32x3"))
    passed = said == [None] * 8
    right = check.recurrent_gdn2

    def wrong(*args: Any, **options: Any) -> Any:
        o, ht = right(*args, **options)
        return 1.01 * o, ht

    check.recurrent_gdn2 = wrong
    failed = check.check_backward(backward, forward, *kind, state, home, "tf32x3")
    check.recurrent_gdn2 = right
    return {"passed": passed, "failed": failed}


def opcheck() -> dict[str, object]:
    made = inputs((1, 18, 1, 16, 32), -0.1, 0.0, torch.float32)
    args = [made[n].requires_grad_() for n in NAMES[:5]]
    torch.library.opcheck(
        torch.ops.kdaprof.kda_fwd.default,
        (*args, None, 0.25, True, "tf32x3"),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )
    return {"passed": True}


CASES = {
    "tail": lambda: against_reference((1, 20, 2, 16, 16)),
    "k wider": lambda: against_reference((1, 17, 2, 48, 16), low=-1.0),
    "v wider": lambda: against_reference((1, 20, 1, 32, 48), low=-1.0),
    "short": lambda: against_reference((2, 3, 2, 16, 32), low=-1.0),
    "one token": lambda: against_reference((1, 1, 1, 16, 16)),
    "wide": lambda: against_reference((1, 5, 1, 80, 128)),
    "no states": lambda: against_reference((1, 32, 1, 16, 16), states=False),
    "strong": lambda: against_reference((1, 36, 1, 16, 16), low=-5.0, high=-5.0),
    "range": lambda: against_reference((1, 36, 1, 16, 16), low=-5.0),
    "mixed": lambda: against_reference((1, 36, 1, 16, 16), edit=strike),
    "equal keys": lambda: against_reference((1, 20, 1, 16, 16), low=0.0, edit=same_keys),
    "bfloat16": lambda: against_reference((1, 20, 1, 32, 16), dtype=torch.bfloat16),
    "float16": lambda: against_reference((1, 20, 1, 32, 16), dtype=torch.float16),
    "at home": lambda: against_reference((2, 64, 2, 16, 16), low=-1.0),
    "padded": lambda: against_reference((1, 64, 1, 48, 48), states=False),
    "whole, not at home": lambda: against_reference((1, 40, 2, 32, 32)),
    "operator": lambda: against_recurrence(fused_kda_op, (1, 20, 1, 16, 16)),
    "causality": later_tokens_change_nothing,
    "views": views,
    "empty": empty,
    "partial": partial,
    "undifferentiated": undifferentiated,
    "opcheck": opcheck,
    "self check": self_check,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        sys.stdout.write(json.dumps({"case": name, **CASES[name]()}) + "\n")
        sys.stdout.flush()
