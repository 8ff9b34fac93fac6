"""Send one call until it is done or refused: journal, retries with the same token, expectations."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from .api_call import RETRIED, Call, CloudError, ErrorKind, StepOutputs, look_up, resolve
from .clock import BackoffPolicy, Clock
from .cloud_adapter import Adapter
from .launch_plan import EventName, LaunchEvent
from .ledger import RunLog

Answer = TypeVar("Answer")


def find_unmet_expectation(expects: Mapping[str, Any], reply: Mapping[str, Any], known: StepOutputs) -> str:
    """Describe the first expectation of a call that its reply does not meet; empty when all hold.

    Example:
        >>> find_unmet_expectation({"State": "ENABLED"}, {"State": "DISABLED"}, {})
        "State is 'DISABLED', not 'ENABLED'"
        >>> find_unmet_expectation({"Of": {"$ref": "machine.id"}}, {"Of": "i-1"}, {"machine": {"id": "i-1"}})
        ''
    """
    for path, expected in expects.items():
        found, wanted = look_up(reply, path), resolve(expected, known)
        described = "set" if wanted is None else repr(wanted)
        holds = found is not None and wanted in (None, found)
        if isinstance(wanted, Mapping) and set(wanted) == {"$not_after"}:
            latest = wanted["$not_after"]
            described = f"{latest} or earlier"
            holds = bool(found) and datetime.fromisoformat(str(found)) <= datetime.fromisoformat(latest)
        if not holds:
            return f"{path} is {found!r}, not {described}"
    return ""


_AWAITED = frozenset({ErrorKind.ABSENT, ErrorKind.TRANSIENT})  # kinds that a call with patience_s waits for


@dataclass(frozen=True, slots=True)
class CallRunner:
    """Sends the calls of one run, whose journal the caller has locked; `receive` gets each event."""

    adapter: Adapter
    log: RunLog
    clock: Clock
    backoff: BackoffPolicy
    receive: Callable[[LaunchEvent], None]

    def notify(self, event: EventName, message: str, *, number: int = 0, step: str = "", **details: Any) -> None:
        """Report an event."""
        where: dict[str, Any] = {"run": self.log.run, "attempt": number, "step": step}
        self.receive(LaunchEvent(at=self.clock.now(), event=event, **where, message=message, details=details))

    def settle(self, call: Call, known: StepOutputs, *, number: int) -> dict[str, Any]:
        """Send a call until it is done or refused, or find its existing result; return the values that it keeps.

        Raises:
            CloudError: Refused; of a retried kind after the last try; or its name is taken by another resource.
        """
        if call.find_first:
            values = self.find_existing(call, known, number=number)
            if values is not None:
                self.log.record("done", attempt=number, step=call.step, kept=values)
                return values
        canonical = json.dumps(resolve(call.params, known), sort_keys=True, separators=(",", ":"))
        self.log.record(
            "intent",
            attempt=number,
            step=call.step,
            operation=f"{call.service}.{call.operation}",
            region=call.region,
            token=call.token,
            params_sha256=hashlib.sha256(canonical.encode()).hexdigest(),
        )
        try:
            values = self.read_outputs(call, known, number=number)
        except CloudError as fault:
            if fault.kind is not ErrorKind.EXISTS or call.find is None:
                raise
            values = self.read_outputs(call.find, known, number=number)
        self.log.record("done", attempt=number, step=call.step, kept=values)
        return values

    def find_existing(
        self, call: Call, known: StepOutputs, *, number: int, absent: Collection[ErrorKind] = (ErrorKind.ABSENT,)
    ) -> dict[str, Any] | None:
        """Return the values that a call keeps, read from its existing result.

        None without a result (the kinds of `absent`), and for a call whose result cannot be looked up.
        """
        if call.find is None:
            return None
        try:
            return self.read_outputs(call.find, known, number=number)
        except CloudError as fault:
            if fault.kind not in absent:
                raise
        return None

    def read_outputs(self, call: Call, known: StepOutputs, *, number: int) -> dict[str, Any]:
        """Send a call until its expectations hold, recording errors only; return the values that it keeps."""
        params = resolve(call.params, known)
        until = self.clock.monotonic() + call.patience_s
        for looks in itertools.count():
            try:
                reply = self._retried(call, params, number=number)
            except CloudError as fault:
                if fault.kind not in _AWAITED or self.clock.monotonic() >= until:
                    raise
            else:
                problem = find_unmet_expectation(call.expects, reply, known)
                if not problem:
                    return {name: look_up(reply, path) for name, path in call.keeps.items()}
                if self.clock.monotonic() >= until:
                    what = f"`{call.step}`: {problem}"
                    raise CloudError(ErrorKind.INVALID, "NotAsExpected", what, way_out=call.way_out)
            self.clock.sleep(self.backoff.poll_delay_s(looks))
        raise AssertionError("unreachable: the loop has no end of its own")

    def _retried(self, call: Call, params: Mapping[str, Any], *, number: int) -> dict[str, Any]:
        """Send a call, with retries; record every error."""

        def send() -> dict[str, Any]:
            try:
                return self.adapter.send(call, params)
            except CloudError as fault:
                about = {"kind": fault.kind, "code": fault.code, "message": str(fault), "scope": fault.scope}
                self.log.record("fault", attempt=number, step=call.step, **about)
                fault.way_out = fault.way_out or call.way_out
                raise

        return self.retry(send, what=call.step, number=number, step=call.step)

    def retry(self, ask: Callable[[], Answer], *, what: str, number: int, step: str = "") -> Answer:
        """Return an answer, asked for again while the cloud is throttled or the outcome unknown."""
        for tries in range(1, self.backoff.tries + 1):
            try:
                return ask()
            except CloudError as fault:
                if fault.kind not in RETRIED or tries == self.backoff.tries:
                    raise
                wait_s = self.backoff.delay_s(tries)
                message = f"{what}: {fault} ({fault.kind}); again in {wait_s:.1f} s"
                self.notify("retry", message, number=number, step=step, kind=fault.kind, code=fault.code)
                self.clock.sleep(wait_s)
        raise AssertionError("unreachable: the last try raises")
