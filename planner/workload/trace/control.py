"""Calls, loops and branches inside a jaxpr."""

from __future__ import annotations

from typing import Any

from .rule import Equation, count_elements, nbytes
from .rules import find_rule

__all__ = ["compute_trip_count", "find_inner_jaxprs", "select_most_expensive_branch"]


def find_inner_jaxprs(equation: Equation) -> list[Any]:
    """Return the jaxprs called by an equation (`jit`, `custom_jvp_call`, `checkpoint`, `shard_map`, ...)."""
    found = []
    for value in equation.params.values():
        jaxpr = getattr(value, "jaxpr", value)  # a ClosedJaxpr contains an open one
        if hasattr(jaxpr, "eqns") and hasattr(jaxpr, "invars"):
            found.append(jaxpr)
    return found


def select_most_expensive_branch(equation: Equation) -> Any:
    """Return the branch of a `cond` with the highest cost."""
    return max((branch.jaxpr for branch in equation.params["branches"]), key=_estimate_cost)


def _estimate_cost(jaxpr: Any) -> float:
    """Return a rough cost of a jaxpr: bytes accessed, plus 2 FLOP per element pair for contractions."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = find_inner_jaxprs(equation)
        if inner:
            total += sum(map(_estimate_cost, inner)) * equation.params.get("length", 1)
        else:
            rule = find_rule(equation.primitive.name)
            total += rule.flops(equation) + sum(rule.bytes_read(equation)) + rule.bytes_written(equation)
            if rule.role.value == "contraction":
                total += count_elements(equation.outvars[0]) * nbytes(equation.invars[1])
    return total


def compute_trip_count(equation: Equation, known: list[int | None]) -> int | None:
    """Return the number of iterations of a `while` loop that counts between known integers in steps of one.

    Args:
        equation: The `while` equation.
        known: Integer values of its operands; None if not known before execution.

    Returns:
        The number of iterations; None if it depends on data.
    """
    condition, body = equation.params["cond_jaxpr"].jaxpr, equation.params["body_jaxpr"].jaxpr
    head, shared = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    tests = [e for e in condition.eqns if e.outvars[0] is condition.outvars[0]]
    if len(condition.eqns) != 1 or not tests or tests[0].primitive.name not in ("lt", "gt"):
        return None
    low, high = tests[0].invars if tests[0].primitive.name == "lt" else reversed(tests[0].invars)
    operands = dict(zip(condition.invars, [*known[:head], *known[head + shared :]], strict=True))
    start, stop = (_find_integer(variable, operands) for variable in (low, high))
    if start is None or stop is None or not _counts_by_one(body, condition.invars.index(low) - head + shared):
        return None
    return max(stop - start, 0)


def _find_integer(variable: Any, operands: dict[Any, int | None]) -> int | None:
    if hasattr(variable, "val"):
        return int(variable.val)
    return operands.get(variable)


def _counts_by_one(body: Any, position: int) -> bool:
    """Return whether a loop's body adds one to the carried value at this position of its operands."""
    counter = body.invars[position]
    result = body.outvars[position - (len(body.invars) - len(body.outvars))]
    for equation in body.eqns:
        if equation.outvars[0] is result and equation.primitive.name == "add":
            first, second = equation.invars
            return (first is counter and _is_one(second)) or (second is counter and _is_one(first))
    return False


def _is_one(variable: Any) -> bool:
    return hasattr(variable, "val") and int(variable.val) == 1
