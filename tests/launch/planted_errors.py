"""Errors that are planted into the launcher, each of which a sequence of faults must find: the test of the test.

Each entry patches the smallest piece that makes one safety property wrong.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import gpuplan.launch.clouds.aws.attempt as aws_attempt
import gpuplan.launch.core.api_call as calls_module
import gpuplan.launch.core.ledger as ledger_module
import gpuplan.launch.core.retry as sending_module
import gpuplan.launch.planning as planning_module
import gpuplan.launch.service as service_module
import pytest
from gpuplan.launch.clouds.aws.adapter import AwsAdapter
from gpuplan.launch.core.api_call import Call, CloudError, ErrorKind
from gpuplan.launch.core.cloud_adapter import CloudMachine, MachineRef
from gpuplan.launch.core.history import AttemptHistory
from gpuplan.launch.core.launch_plan import LaunchPlan
from gpuplan.launch.core.ledger import RunLog
from gpuplan.launch.core.request import LaunchCandidate, LaunchRequest
from gpuplan.launch.engine import Application, Teardown
from gpuplan.launch.service import Launcher
from launch.fake_cloud import FakeAdapter

from launch import fake_cloud

__all__ = ["AWS_PLANTED_ERRORS", "PLANTED_ERRORS"]

Patch = pytest.MonkeyPatch
PLANTED_ERRORS: dict[str, Callable[[Patch], None]] = {}  # in the launcher: seen on the cloud in memory
AWS_PLANTED_ERRORS: dict[str, Callable[[Patch], None]] = {}  # in the adapter of EC2: seen over HTTP


def planted_in_aws(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Register a planted error of the EC2 adapter under its function's name."""
    AWS_PLANTED_ERRORS[plant.__name__] = plant
    return plant


def planted(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Register a planted error under its function's name."""
    PLANTED_ERRORS[plant.__name__] = plant
    return plant


@planted
def only_machines_are_cleaned_up(patch: Patch) -> None:
    """Leave groups, schedules and everything else of an ended attempt."""
    patch.setattr(Teardown, "_remove_resources", lambda self, past: None)


@planted
def the_schedule_names_another_machine(patch: Patch) -> None:
    """Aim the cloud's cap at an instance that is not the attempt's, and read back nothing but its name."""

    def wrong(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> tuple[Call, ...]:
        create, read = right(request, candidate, number)
        params = {**create.params, "target": "m-9999"}
        return create.model_copy(update={"params": params}), read.model_copy(update={"expects": {}})

    right = fake_cloud._schedule_calls
    patch.setattr(fake_cloud, "_schedule_calls", wrong)


@planted
def the_schedule_is_ten_times_late(patch: Patch) -> None:
    """End machines by the cloud at ten times their cap."""

    def wrong(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> tuple[Call, ...]:
        return right(request, candidate.model_copy(update={"cap_s": candidate.cap_s * 10}), number)

    right = fake_cloud._schedule_calls
    patch.setattr(fake_cloud, "_schedule_calls", wrong)


@planted
def the_guest_timer_is_ten_times_late(patch: Patch) -> None:
    """Set the guest's timer to ten times the cap."""

    def wrong(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> Call:
        call = right(request, candidate, number)
        return call.model_copy(update={"params": {**call.params, "timer_s": candidate.cap_s * 10}})

    right = fake_cloud._machine_call
    patch.setattr(fake_cloud, "_machine_call", wrong)


@planted
def a_cap_that_cannot_be_armed_is_ignored(patch: Patch) -> None:
    """Take every failure of a call that arms a layer, or makes it, for done."""

    def wrong(self: Application, attempt: Any, call: Call, known: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return right(self, attempt, call, known)
        except CloudError:
            if call.step.startswith("cap"):
                return {}
            raise

    right = Application._settled
    patch.setattr(Application, "_settled", wrong)


@planted
def stop_filters_by_todays_owner(patch: Patch) -> None:
    """Look for machines of the present owner only, instead of the recorded id and the plan's owner."""

    def wrong(self: Teardown, past: AttemptHistory) -> float | None:
        listed = self.runner.adapter.machines([past.attempt.candidate.region]).machines
        for machine in listed:
            if (machine.run, machine.attempt, machine.owner) == (past.run, past.attempt.number, owner[0]):
                self._end(machine.ref, started_at=machine.started_at, number=past.attempt.number)
        return None

    def launcher(self: Launcher, *args: Any, **more: Any) -> Any:
        owner[0] = self.ledger.owner
        return right(self, *args, **more)

    owner = [""]
    right = Launcher._end
    patch.setattr(Launcher, "_end", launcher)
    patch.setattr(Teardown, "_end_machine", wrong)


@planted
def an_attempt_is_over_once_the_order_to_end_was_sent(patch: Patch) -> None:
    """Write down the end without asking the cloud about the machine; the order itself may be lost."""

    def wrong(self: Teardown, ref: MachineRef, *, started_at: datetime | None, number: int) -> None:
        for call in self.runner.adapter.build_end_calls(ref):
            try:
                self.send_unless_absent(call, {}, number=number)
            except CloudError:
                return

    patch.setattr(Teardown, "_end", wrong)
    patch.setattr(Teardown, "_remove_resources", lambda self, past: None)


@planted
def each_try_has_a_token_of_its_own(patch: Patch) -> None:
    """Make tokens at random when a call is sent, so that a repeated call is another one."""

    def wrong(self: FakeAdapter, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        if call.makes == "machine":
            params = {**params, "token": uuid.uuid4().hex}
        return right(self, call, params)

    right = FakeAdapter.send
    patch.setattr(FakeAdapter, "send", wrong)


@planted
def machines_are_made_without_tags(patch: Patch) -> None:
    """Forget the run's tag in the call that makes a machine."""

    def wrong(request: LaunchRequest, candidate: LaunchCandidate, number: int) -> Call:
        call = right(request, candidate, number)
        tags = {name: value for name, value in call.params["tags"].items() if name != "gpuplan-run"}
        return call.model_copy(update={"params": {**call.params, "tags": tags}})

    right = fake_cloud._machine_call
    patch.setattr(fake_cloud, "_machine_call", wrong)


@planted
def reap_trusts_this_computers_clock(patch: Patch) -> None:
    """Compare caps with the local clock instead of the cloud's."""

    def wrong(self: Launcher, *args: Any, **more: Any) -> Any:
        now = self.clock.now()
        patch.setattr(service_module, "is_past_cap", lambda one: one.cap_at is not None and now > one.cap_at)
        return right(self, *args, **more)

    right = Launcher.reap
    patch.setattr(Launcher, "reap", wrong)


@planted
def machines_of_others_are_ended(patch: Patch) -> None:
    """Take every machine with our tags for one's own."""

    def wrong(self: FakeAdapter, one: Any) -> CloudMachine:
        return right(self, one).model_copy(update={"owner": "own-00000000000000a1"})

    right = FakeAdapter._machine
    patch.setattr(FakeAdapter, "_machine", wrong)


@planted
def an_unknown_outcome_is_taken_for_a_refusal(patch: Patch) -> None:
    """Go on to the next candidate when the answer to the call that makes the machine is lost."""

    def wrong(self: FakeAdapter, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return right(self, call, params)
        except CloudError as fault:
            if call.makes == "machine" and fault.kind is ErrorKind.UNKNOWN:
                raise CloudError(ErrorKind.CAPACITY, fault.code, "taken for a refusal") from fault
            raise

    right = FakeAdapter.send
    patch.setattr(FakeAdapter, "send", wrong)


@planted
def intents_are_written_after_the_call(patch: Patch) -> None:
    """Write to the ledger only once an answer is there, so that a crash before it leaves no trace."""

    def wrong(self: RunLog, event: str, **values: Any) -> None:
        if event == "intent":
            held.append((event, values))
            return
        if event == "done" and held:
            right(self, held[-1][0], **held[-1][1])
        held.clear()
        right(self, event, **values)

    held: list[tuple[str, dict[str, Any]]] = []
    right = RunLog.record
    patch.setattr(RunLog, "record", wrong)


@planted
def what_is_read_back_is_not_compared(patch: Patch) -> None:
    """Take a schedule for armed whatever it says, at a cloud that sets the time a year late."""

    def stale(self: FakeAdapter, params: dict[str, Any]) -> dict[str, Any]:
        late = datetime.fromisoformat(params["at"]) + timedelta(days=365)
        return right(self, {**params, "at": late.isoformat()})

    right = FakeAdapter._create_schedule
    patch.setattr(FakeAdapter, "_create_schedule", stale)
    for module in (calls_module, sending_module):
        if hasattr(module, "find_unmet_expectation"):
            patch.setattr(module, "find_unmet_expectation", lambda expects, reply, known: "")


@planted
def a_repeated_launch_plans_a_new_attempt(patch: Patch) -> None:
    """Start another attempt although one is open."""

    def wrong(self: Launcher, plan: LaunchPlan) -> AttemptHistory:
        log = self.ledger.open_run(plan.run)
        history = log.history()
        if history.current() is not None:
            number = history.next_attempt
            request = plan.request.model_copy(update={"attempt": number})
            from gpuplan.launch.planning import make_plan

            plan = make_plan(request, self.adapter(plan.request.provider))
        return Application(plan, self.runner(log, plan.request.provider)).apply()

    patch.setattr(Launcher, "launch", wrong)


@planted
def a_torn_line_swallows_the_next(patch: Patch) -> None:
    """Append to what a killed process left of a line."""

    def wrong(path: Path, line: str) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{line}\n".encode())
        os.close(handle)

    patch.setattr(ledger_module, "append_durably", wrong)


@planted
def a_refusal_is_believed_after_a_lost_answer(patch: Patch) -> None:
    """Take a machine for refused when the last answer was a refusal, whatever became of the first request."""

    def wrong(self: AttemptHistory) -> bool:
        faults = [one for one in self.records if one.event == "fault" and one.step == self.machine_step]
        return bool(faults) and faults[-1].kind not in calls_module.RETRIED

    patch.setattr(AttemptHistory, "machine_refused", property(wrong))


@planted
def nobody_waits_until_a_machine_is_visible(patch: Patch) -> None:
    """Take a machine that is not listed for none."""
    patch.setattr(FakeAdapter, "visibility_s", 0.0)


@planted
def leftovers_go_while_a_region_is_silent(patch: Patch) -> None:
    """Remove what belongs to no machine that is seen, although not every place has answered."""

    def wrong(*args: Any, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            machines, leftovers = FakeAdapter.machines, FakeAdapter.leftovers
            inner.setattr(FakeAdapter, "machines", lambda *own: replace(machines(*own), failed={}))
            inner.setattr(FakeAdapter, "leftovers", lambda *own: (leftovers(*own)[0], {}))
            return right(*args, **more)

    right = service_module.remove_leftovers
    patch.setattr(service_module, "remove_leftovers", wrong)


@planted
def reap_ends_machines_on_record_only(patch: Patch) -> None:
    """Leave machines past their cap that are known by their tags alone."""

    def wrong(*args: Any, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(service_module, "list_machines", lambda *own: ())
            return right(*args, **more)

    right = Launcher.reap
    patch.setattr(Launcher, "reap", wrong)


@planted
def caps_are_three_times_too_long(patch: Patch) -> None:
    """Give machines three times the time that plan and limits allow."""

    def wrong(*terms: Any, **limits: Any) -> LaunchCandidate:
        capped = right(*terms, **limits)
        return capped.model_copy(update={"cap_s": 3 * capped.cap_s})

    right = planning_module.apply_cap
    patch.setattr(planning_module, "apply_cap", wrong)


def change_machines(patch: Patch, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what EC2 is asked for when a machine is made."""

    def wrong(self: AwsAdapter, call: Call, params: Mapping[str, Any]) -> dict[str, Any]:
        if call.makes == "machine":
            params = json.loads(json.dumps(params))
            change(params)
        return right(self, call, params)

    right = AwsAdapter.send
    patch.setattr(AwsAdapter, "send", wrong)


@planted_in_aws
def disks_outlive_their_machines(patch: Patch) -> None:
    """Keep the disk when the instance is terminated."""
    change_machines(
        patch, lambda params: params["BlockDeviceMappings"][0]["Ebs"].update(DeleteOnTermination=False)
    )


@planted_in_aws
def ten_times_the_price_is_bid(patch: Patch) -> None:
    """Bid ten times as much for spot machines."""

    def bid(params: dict[str, Any]) -> None:
        terms = params.get("InstanceMarketOptions", {}).get("SpotOptions")
        if terms:
            terms["MaxPrice"] = str(10 * Decimal(terms["MaxPrice"]))

    change_machines(patch, bid)


@planted_in_aws
def an_interruption_stops_the_machine(patch: Patch) -> None:
    """Have a spot machine stopped when it is taken back, so that its disk is paid for."""

    def stop(params: dict[str, Any]) -> None:
        terms = params.get("InstanceMarketOptions", {}).get("SpotOptions")
        if terms:
            terms |= {"InstanceInterruptionBehavior": "stop", "SpotInstanceType": "persistent"}

    change_machines(patch, stop)


@planted_in_aws
def eventbridge_ends_another_instance(patch: Patch) -> None:
    """Aim the schedule at an instance that is not the attempt's, and compare nothing of it."""

    def wrong(*args: Any, **more: Any) -> list[Call]:
        create, read = right(*args, **more)
        target = {**create.params["Target"], "Input": json.dumps({"InstanceIds": ["i-0123456789abcdef0"]})}
        create = create.model_copy(update={"params": {**create.params, "Target": target}})
        return [create, read.model_copy(update={"expects": {}})]

    right = aws_attempt.build_schedule_calls
    patch.setattr(aws_attempt, "build_schedule_calls", wrong)


@planted_in_aws
def shutdown_is_ten_times_late(patch: Patch) -> None:
    """Set the timer of the start-up script to ten times the cap."""

    def wrong(*args: Any) -> str:
        return re.sub(r"shutdown -h \+(\d+)", r"shutdown -h +\g<1>0", right(*args))

    right = aws_attempt.build_startup_script
    patch.setattr(aws_attempt, "build_startup_script", wrong)


@planted_in_aws
def groups_and_schedules_stay(patch: Patch) -> None:
    """Leave everything but instances behind."""
    patch.setattr(Teardown, "_remove_resources", lambda self, past: None)
